// What the decode engine admits, refuses and says alone; hand-offs are in tests/worker/engine_pair_test.cc.
#include "decode_worker/decode_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/fakes/engine_pair.h"

namespace baton::decode_worker {
namespace {

using fakes::EnginePair;
using fakes::EnginePairOptions;
using fakes::Heard;
using runner::FinishReason;
using testing::HasSubstr;

TEST(DecodeEngine, AdmissionReservesThePromptAndSomeRoomToGrow) {
  EnginePairOptions options;
  options.decode.headroom_tokens = 64;
  EnginePair pair(options);
  struct Case {
    uint32_t prompt, max_tokens, blocks;
  };
  for (const Case& c : {Case{16, 400, 10}, Case{16, 8, 3}, Case{17, 8, 4}, Case{1, 1, 1}}) {
    const worker::EngineRequest request = pair.MakeRequest(c.prompt, c.max_tokens);
    const uint32_t before = pair.decode_pool().counts().reserved;
    const auto blocks = pair.decode().Admit({request, base::Id128{21, 22}});
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    EXPECT_EQ(*blocks, c.blocks);
    EXPECT_EQ(pair.decode_pool().counts().reserved - before, c.blocks);
    EXPECT_EQ(pair.decode().load().blocks_reserved - before, c.blocks);
    pair.Cancel(request.key);
    EXPECT_TRUE(pair.WaitUntilIdle());
  }
  EXPECT_TRUE(pair.PoolsAreFree());
}

TEST(DecodeEngine, AnAdmissionIsAnsweredWhileAStepRuns) {
  EnginePair pair;
  pair.decode_gate().Close();
  ASSERT_TRUE(pair.AdmitLocal(pair.MakeRequest(20, 2)).ok());
  pair.decode_gate().WaitUntilAtGate();
  const worker::EngineRequest request = pair.MakeRequest(20, 2);
  EXPECT_TRUE(pair.Admit(request).ok());
  EXPECT_EQ(pair.handoff().open_at_sink(), 1u) << "and the hand-off is expected at once";
  pair.Cancel(request.key);
  pair.decode_gate().Open();
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(DecodeEngine, AFullLedgerRefusesAndRefusalsLeaveNoTrace) {
  EnginePairOptions options;
  options.decode_blocks = 10;
  options.decode.headroom_tokens = 8;
  EnginePair pair(options);
  const worker::EngineRequest first = pair.MakeRequest(40, 8);  // Six blocks.
  ASSERT_TRUE(pair.Admit(first).ok());
  const worker::EngineRequest second = pair.MakeRequest(40, 8);
  for (int i = 0; i < 100; ++i) {
    const absl::Status status = pair.Admit(second);
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("6"));
  }
  EXPECT_EQ(pair.decode_pool().counts().reserved, 6u);
  pair.Cancel(first.key);
  ASSERT_TRUE(pair.decode().WaitUntilIdle(absl::Seconds(10)));
  EXPECT_TRUE(pair.Admit(second).ok());
  pair.Cancel(second.key);
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(DecodeEngine, NoMoreSequencesAreAdmittedThanMayRun) {
  EnginePairOptions options;
  options.decode.runner.running_max = 3;
  EnginePair pair(options);
  std::vector<worker::AttemptKey> keys;
  for (int i = 0; i < 3; ++i) {
    const worker::EngineRequest request = pair.MakeRequest(4, 4);
    ASSERT_TRUE(pair.Admit(request).ok());
    keys.push_back(request.key);
  }
  const absl::Status status = pair.Admit(pair.MakeRequest(4, 4));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 3"));
  for (const auto& key : keys) pair.Cancel(key);
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_TRUE(pair.PoolsAreFree());
}

TEST(DecodeEngine, AnAttemptIsAdmittedOnceAndNotAfterItsCancel) {
  EnginePair pair;
  const worker::EngineRequest request = pair.MakeRequest(10, 3);
  ASSERT_TRUE(pair.AdmitLocal(request).ok());
  EXPECT_EQ(pair.AdmitLocal(request).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(pair.Await(request.key).ids(), pair.Reference(request));
  const worker::EngineRequest late = pair.MakeRequest(10, 3);
  pair.Cancel(late.key);
  EXPECT_EQ(pair.AdmitLocal(late).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_TRUE(pair.PoolsAreFree());
}

TEST(DecodeEngine, ALocalAnswerReportsItsPrefill) {
  EnginePair pair;
  worker::EngineRequest request = pair.MakeRequest(40, 3);
  request.prompt_logprobs = 2;
  ASSERT_TRUE(pair.AdmitLocal(request).ok());
  const Heard heard = pair.Await(request.key);
  ASSERT_EQ(heard.events.size(), 3u);
  EXPECT_TRUE(heard.events[0].prefill_report.has_value());
  EXPECT_FALSE(heard.events[0].decode_report.has_value());
  EXPECT_EQ(heard.events[0].prompt_logprobs.size(), 40u);
  EXPECT_FALSE(heard.events[1].prefill_report.has_value());
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(DecodeEngine, ADeadlineEndsWhatIsExpectedAndWhatRuns) {
  EnginePair pair;
  worker::EngineRequest expected = pair.MakeRequest(20, 5);
  expected.time_left = absl::ZeroDuration();
  ASSERT_TRUE(pair.Admit(expected).ok());
  pair.decode_gate().Close();
  worker::EngineRequest running = pair.MakeRequest(20, 400);
  running.time_left = absl::Milliseconds(20);
  ASSERT_TRUE(pair.AdmitLocal(running).ok());
  const absl::Time past = absl::Now() + absl::Milliseconds(20);
  while (absl::Now() <= past) absl::SleepFor(absl::Milliseconds(1));
  pair.decode_gate().Open();
  for (const auto& key : {expected.key, running.key}) {
    const Heard heard = pair.Await(key);
    ASSERT_EQ(heard.errors.size(), 1u);
    EXPECT_EQ(heard.errors[0].code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_TRUE(pair.PoolsAreFree());
}

// A prefill worker that breaks the rules: the engine checks again what it adopts.

struct BadHandoff {
  std::string name;
  std::function<void(kvstore::ReceivedHandoff&)> spoil;
};

// Takes every expectation and never says anything of its own.
class SilentReceiver final : public kvstore::HandoffReceiver {
 public:
  void Expect(const kvstore::HandoffKey&, kvstore::ExpectedHandoff) override {}
  bool Cancel(const kvstore::HandoffKey&) override { return false; }
  void Decline(const kvstore::HandoffKey& key) override { declined.push_back(key); }
  std::vector<kvstore::HandoffKey> declined;  // On the test's thread.
};

// A decode engine that hears of hand-offs from the test.
class AloneTest : public testing::Test {
 protected:
  AloneTest() { engine_.Start(receiver_, routers_); }
  ~AloneTest() override { engine_.Stop(); }

  worker::EngineRequest Request() const {
    worker::EngineRequest request{
        .key = {{1, 2}, 1}, .router = {3, 4}, .output_start = 10, .max_tokens = 5};
    request.tokens.assign(10, 7);
    return request;
  }

  // What a receiver that took everything would tell: two blocks of the three reserved are bound.
  kvstore::ReceivedHandoff Received(uint32_t first_token) {
    kvstore::ReceivedHandoff received{.blocks = std::vector<kvstore::KvBlockId>(2),
                                      .reserved_left = 0,
                                      .seal = {.tokens = 10, .first_tokens = {{0, first_token}}}};
    received.reserved_left = pool_.counts().reserved - 2;
    pool_.AllocateReserved(absl::MakeSpan(received.blocks));
    return received;
  }

  Heard Await(const worker::AttemptKey& key) {
    EXPECT_TRUE(routers_.WaitUntil([&] { return routers_.heard(key).over(); }));
    EXPECT_TRUE(engine_.WaitUntilIdle(absl::Seconds(10)));
    return routers_.heard(key);
  }

  fakes::FakeModel model_{{.vocabulary_size = 64, .context_tokens = 64, .block_tokens = 8}};
  std::unique_ptr<kvstore::KvArena> arena_ = *kvstore::KvArena::Create(model_.kv_layout(), 16);
  kvstore::KvBlockPool pool_{16};
  base::Metrics metrics_;
  worker::WorkerProbe probe_{metrics_, worker::WorkerRole::kDecode};
  fakes::RecordingRouters routers_;
  SilentReceiver receiver_;
  DecodeEngine engine_{model_, pool_, arena_->view(), {.runner = {.chunk_tokens = 16}}, probe_};
};

class BadHandoffToEngine : public AloneTest, public testing::WithParamInterface<BadHandoff> {};

TEST_P(BadHandoffToEngine, IsAnErrorAndNeverMore) {
  const worker::EngineRequest request = Request();
  ASSERT_TRUE(engine_.Admit({request, base::Id128{5, 6}}).ok());
  kvstore::ReceivedHandoff received = Received(1);
  const std::vector<kvstore::KvBlockId> blocks = received.blocks;
  GetParam().spoil(received);
  // What the engine is not given back, the test gives back.
  for (size_t i = received.blocks.size(); i < blocks.size(); ++i) pool_.Release(blocks[i]);
  engine_.OnHandoffReady(request.key, std::move(received));
  const Heard heard = Await(request.key);
  ASSERT_EQ(heard.errors.size(), 1u);
  EXPECT_EQ(heard.errors[0].code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(pool_.counts().free, 16u);
  EXPECT_EQ(pool_.counts().reserved, 0u);
}

const BadHandoff kBadHandoffs[] = {
    {"TooFewBlocks", [](auto& r) { r.blocks.pop_back(); }},
    {"OtherTokenCount", [](auto& r) { r.seal.tokens = 11; }},
    {"NoFirstToken", [](auto& r) { r.seal.first_tokens.clear(); }},
    {"TwoFirstTokens", [](auto& r) { r.seal.first_tokens.push_back({1, 1}); }},
    {"OtherSample", [](auto& r) { r.seal.first_tokens[0].sample_index = 1; }},
    {"TokenOutsideVocabulary", [](auto& r) { r.seal.first_tokens[0].token = 64; }},
    {"AlternativeOutsideVocabulary", [](auto& r) { r.seal.first_tokens[0].top = {{64, -1.f}}; }},
};

INSTANTIATE_TEST_SUITE_P(Cases, BadHandoffToEngine, testing::ValuesIn(kBadHandoffs),
                         [](const auto& info) { return info.param.name; });

TEST_F(AloneTest, WhatFindsNoRoomIsNotExpected) {
  ASSERT_TRUE(pool_.Reserve(16).ok());
  const worker::EngineRequest request = Request();
  EXPECT_EQ(engine_.Admit({request, base::Id128{5, 6}}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(receiver_.declined, testing::ElementsAre(request.key));
  pool_.Unreserve(16);
}

TEST_F(AloneTest, AnAnswerThatEndedAtItsFirstTokenIsNotContinued) {
  worker::EngineRequest request = Request();
  request.stop_token_ids = {9};
  ASSERT_TRUE(engine_.Admit({request, base::Id128{5, 6}}).ok());
  engine_.OnHandoffReady(request.key, Received(9));
  EXPECT_EQ(Await(request.key).finish, FinishReason::kStop);
  request.key.attempt = 2;
  request.stop_token_ids.clear();
  request.max_tokens = 1;
  ASSERT_TRUE(engine_.Admit({request, base::Id128{5, 6}}).ok());
  engine_.OnHandoffReady(request.key, Received(9));
  const Heard heard = Await(request.key);
  EXPECT_EQ(heard.finish, FinishReason::kLength);
  EXPECT_EQ(heard.ids(), std::vector<uint32_t>{9});
  EXPECT_EQ(pool_.counts().free, 16u);
}

TEST_F(AloneTest, AHandoffNobodyAskedForIsGivenBack) {
  ASSERT_TRUE(pool_.Reserve(3).ok());
  engine_.OnHandoffReady({{8, 8}, 1}, Received(1));
  ASSERT_TRUE(routers_.WaitUntil([&] { return pool_.counts().free == 16; }));
  EXPECT_EQ(pool_.counts().reserved, 0u);
  engine_.OnHandoffFailed({{8, 8}, 1}, absl::UnavailableError("x"));
}

TEST_F(AloneTest, ACancelWhoseHandoffIsOnItsWayWaitsForIt) {
  const worker::EngineRequest request = Request();
  ASSERT_TRUE(engine_.Admit({request, base::Id128{5, 6}}).ok());
  engine_.Cancel(request.router, request.key);  // The receiver says: too late.
  EXPECT_FALSE(engine_.WaitUntilIdle(absl::Milliseconds(1)));
  engine_.OnHandoffReady(request.key, Received(1));
  EXPECT_TRUE(engine_.WaitUntilIdle(absl::Seconds(10)));
  EXPECT_TRUE(routers_.heard(request.key).events.empty());
  EXPECT_EQ(pool_.counts().free, 16u);
  EXPECT_EQ(pool_.counts().reserved, 0u);
}

TEST_F(AloneTest, AGivenUpPrefillIsUnavailableToTheRouter) {
  const worker::EngineRequest request = Request();
  ASSERT_TRUE(engine_.Admit({request, base::Id128{5, 6}}).ok());
  pool_.Unreserve(pool_.counts().reserved);
  engine_.OnHandoffFailed(request.key, absl::CancelledError("the source gave up"));
  const Heard heard = Await(request.key);
  ASSERT_EQ(heard.errors.size(), 1u);
  EXPECT_EQ(heard.errors[0].code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton::decode_worker
