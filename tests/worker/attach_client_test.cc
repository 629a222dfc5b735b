// The worker's end of the Attach stream, against a router that behaves, is slow, refuses, breaks and comes back.
#include "worker/attach_client.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "tests/fakes/fake_router.h"

namespace baton::worker {
namespace {

using fakes::FakeRouter;

class RecordingEngine final : public EngineControl {
 public:
  void Cancel(const base::Id128& router, const AttemptKey& key) override {
    base::MutexLock lock(mutex_);
    cancels_.emplace_back(router, key);
  }
  void DropRouter(const base::Id128& router) override {
    base::MutexLock lock(mutex_);
    dropped_.push_back(router);
  }
  WorkerLoad load() const override {
    base::MutexLock lock(mutex_);
    return load_;
  }
  void SetLoad(const WorkerLoad& load) {
    base::MutexLock lock(mutex_);
    load_ = load;
  }
  std::vector<std::pair<base::Id128, AttemptKey>> cancels() const {
    base::MutexLock lock(mutex_);
    return cancels_;
  }
  std::vector<base::Id128> dropped() const {
    base::MutexLock lock(mutex_);
    return dropped_;
  }

 private:
  mutable base::Mutex mutex_;
  std::vector<std::pair<base::Id128, AttemptKey>> cancels_ ABSL_GUARDED_BY(mutex_);
  std::vector<base::Id128> dropped_ ABSL_GUARDED_BY(mutex_);
  WorkerLoad load_ ABSL_GUARDED_BY(mutex_);
};

WorkerHello Hello() {
  return {.incarnation = {3, 4},
          .role = WorkerRole::kDecode,
          .address = "127.0.0.1:1",
          .model_name = "fake",
          .compatibility = {.model_digest = std::string(32, 'm'),
                            .numerics_class = "fake",
                            .layout = {.layers = 1, .kv_heads = 1, .head_dim = 2, .block_tokens = 8}},
          .context_tokens = 100,
          .vocabulary_size = 50,
          .blocks_total = 10,
          .running_sequences_max = 5,
          .chunk_tokens = 16,
          .cpu_level = "reference",
          .local_prefill = true};
}

class AttachClientTest : public testing::Test {
 protected:
  void Start(AttachOptions options = {}) {
    if (options.routers.empty()) options.routers = {router_->address()};
    options.report_interval = absl::Milliseconds(5);
    options.retry_min = absl::Milliseconds(10);
    client_ = std::make_unique<AttachClient>(options, engine_, nullptr);
    client_->Start(Hello());
  }
  void WaitUntilAttached() {
    ASSERT_TRUE(router_->WaitUntil([&] { return client_->IsAttached(router_->incarnation()); }));
  }
  TokenEvent Event(uint32_t position) const {
    TokenEvent event{.router = router_->incarnation(), .key = kKey, .position = position};
    event.tokens.push_back({.token = position + 100});
    return event;
  }
  fakes::Told told() const { return router_->told(Hello().incarnation.ToBytes(), kKey); }

  static constexpr AttemptKey kKey{{8, 9}, 1};
  std::unique_ptr<FakeRouter> router_ = std::make_unique<FakeRouter>();
  RecordingEngine engine_;
  std::unique_ptr<AttachClient> client_;
};

TEST_F(AttachClientTest, SaysWhoItIs) {
  Start();
  WaitUntilAttached();
  const v1::WorkerHello hello = router_->hellos().at(0);
  EXPECT_EQ(hello.incarnation(), Hello().incarnation.ToBytes());
  EXPECT_EQ(hello.role(), v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(hello.address(), "127.0.0.1:1");
  EXPECT_EQ(hello.model_name(), "fake");
  EXPECT_EQ(hello.compatibility().digest(), Hello().compatibility.Digest());
  EXPECT_EQ(hello.compatibility().layout().block_tokens(), 8u);
  EXPECT_EQ(hello.context_tokens(), 100u);
  EXPECT_EQ(hello.vocabulary_size(), 50u);
  EXPECT_EQ(hello.blocks_total(), 10u);
  EXPECT_EQ(hello.running_sequences_max(), 5u);
  EXPECT_EQ(hello.chunk_tokens(), 16u);
  EXPECT_EQ(hello.cpu_level(), "reference");
  EXPECT_TRUE(hello.local_prefill());
}

TEST_F(AttachClientTest, SendsEventsInOrderAndOnlyToTheirRouter) {
  FakeRouter other;
  Start({.routers = {router_->address(), other.address()}});
  WaitUntilAttached();
  ASSERT_TRUE(other.WaitUntil([&] { return client_->IsAttached(other.incarnation()); }));
  for (uint32_t position = 0; position < 100; ++position) {
    TokenEvent foreign = Event(position);
    foreign.router = other.incarnation();
    const std::vector<TokenEvent> step = {Event(2 * position), foreign, Event(2 * position + 1)};
    client_->Publish(step);
  }
  ASSERT_TRUE(router_->WaitUntil([&] { return told().tokens.size() == 200; }));
  for (uint32_t position = 0; position < 200; ++position) {
    EXPECT_EQ(told().tokens[position], position + 100) << "at " << position;
  }
  ASSERT_TRUE(other.WaitUntil(
      [&] { return other.told(Hello().incarnation.ToBytes(), kKey).tokens.size() == 100; }));
  EXPECT_LE(router_->message_count(), 100u) << "one message a step, or fewer";
}

TEST_F(AttachClientTest, ReportsLoadAtOnceThenWhenItChanges) {
  engine_.SetLoad({.blocks_free = 7, .queued_tokens = 1});
  Start();
  ASSERT_TRUE(router_->WaitUntil([&] { return !router_->loads().empty(); }));
  EXPECT_EQ(router_->loads()[0].blocks_free(), 7u);
  EXPECT_EQ(router_->loads()[0].sequence_number(), 1u);
  EXPECT_EQ(router_->loads()[0].routers_attached(), 1u);
  engine_.SetLoad({.blocks_free = 6, .current_step_age = absl::Milliseconds(3)});
  ASSERT_TRUE(router_->WaitUntil([&] { return router_->loads().size() >= 4; }));
  const auto loads = router_->loads();
  EXPECT_EQ(loads.back().blocks_free(), 6u);
  EXPECT_EQ(loads.back().current_step_age().nanos(), 3'000'000);
  for (size_t i = 0; i < loads.size(); ++i) EXPECT_EQ(loads[i].sequence_number(), i + 1);
}

TEST_F(AttachClientTest, BringsCancels) {
  Start();
  WaitUntilAttached();
  router_->SendCancel(kKey);
  ASSERT_TRUE(router_->WaitUntil([&] { return engine_.cancels().size() == 1; }));
  EXPECT_EQ(engine_.cancels()[0].first, router_->incarnation());
  EXPECT_EQ(engine_.cancels()[0].second, kKey);
}

TEST_F(AttachClientTest, ANonsenseCancelClosesTheStream) {
  Start();
  WaitUntilAttached();
  router_->SendCancel({{0, 0}, 0});
  ASSERT_TRUE(router_->WaitUntil([&] { return engine_.dropped().size() == 1; }));
  EXPECT_TRUE(engine_.cancels().empty());
  ASSERT_TRUE(router_->WaitUntil([&] { return router_->hellos().size() == 2; }));
}

TEST_F(AttachClientTest, ABrokenStreamDropsTheRouterAndIsDialledAgain) {
  Start();
  WaitUntilAttached();
  router_->BreakStreams(grpc::Status(grpc::StatusCode::UNAVAILABLE, "test"));
  ASSERT_TRUE(router_->WaitUntil([&] { return engine_.dropped().size() == 1; }));
  EXPECT_EQ(engine_.dropped()[0], router_->incarnation());
  ASSERT_TRUE(router_->WaitUntil([&] { return router_->hellos().size() == 2; }));
  WaitUntilAttached();
  client_->Publish(std::vector<TokenEvent>{Event(0)});
  ASSERT_TRUE(router_->WaitUntil([&] { return told().tokens.size() == 1; }));
}

TEST_F(AttachClientTest, ARouterThatCameBackAtItsAddressIsAnotherOne) {
  const uint16_t port = router_->port();
  Start();
  WaitUntilAttached();
  const base::Id128 first = router_->incarnation();
  router_.reset();
  router_ = std::make_unique<FakeRouter>(port);
  WaitUntilAttached();
  EXPECT_NE(router_->incarnation(), first);
  EXPECT_FALSE(client_->IsAttached(first));
  EXPECT_EQ(engine_.dropped(), std::vector<base::Id128>{first});
}

TEST_F(AttachClientTest, ARefusedAttachIsTriedAgain) {
  router_->RefuseWith(grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "still here"));
  Start();
  ASSERT_TRUE(router_->WaitUntil([&] { return router_->hellos().size() >= 3; }));
  EXPECT_FALSE(client_->IsAttached(router_->incarnation()));
  EXPECT_TRUE(engine_.dropped().empty()) << "it never was attached";
  router_->RefuseWith(grpc::Status::OK);
  WaitUntilAttached();
}

TEST_F(AttachClientTest, ASlowRouterNeverBlocksAndAtTheBoundCountsAsGone) {
  AttachOptions options;
  options.pending_bytes_max = 1 << 20;
  Start(options);
  WaitUntilAttached();
  router_->SetReading(false);
  TokenEvent large = Event(0);
  large.error = absl::InternalError(std::string(64 << 10, 'x'));
  const std::vector<TokenEvent> step = {large};
  // HTTP/2 takes some windows full; then the batch grows to its bound.
  for (int i = 0; i < 4096 && engine_.dropped().empty(); ++i) {
    client_->Publish(step);
    if (i > 256) absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_TRUE(router_->WaitUntil([&] { return engine_.dropped().size() == 1; }));
}

TEST_F(AttachClientTest, DrainingIsToldAndSoItIsOnALaterAttach) {
  Start();
  WaitUntilAttached();
  client_->AnnounceDraining();
  ASSERT_TRUE(router_->WaitUntil([&] { return router_->draining_count() == 1; }));
  router_->BreakStreams(grpc::Status::OK);
  ASSERT_TRUE(router_->WaitUntil([&] { return router_->draining_count() == 2; }));
}

TEST_F(AttachClientTest, StopSendsWhatWasPublished) {
  Start();
  WaitUntilAttached();
  for (uint32_t position = 0; position < 1000; ++position) {
    client_->Publish(std::vector<TokenEvent>{Event(position)});
  }
  client_->Stop(absl::Seconds(10));
  EXPECT_EQ(told().tokens.size(), 1000u);
  EXPECT_EQ(client_->routers_attached(), 0u);
  client_->Publish(std::vector<TokenEvent>{Event(1000)});
}

TEST_F(AttachClientTest, StopEndsWhileNobodyAnswers) {
  Start({.routers = {"127.0.0.1:1"}});
  client_->Stop(absl::Seconds(10));
}

}  // namespace
}  // namespace baton::worker
