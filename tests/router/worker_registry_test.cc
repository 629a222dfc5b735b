#include "router/worker_registry.h"

#include "gtest/gtest.h"

namespace baton::router {
namespace {

class SilentConnection final : public WorkerConnection {
 public:
  void Cancel(const RequestKey&) override {}
  void Close(const absl::Status&) override {}
};

class WorkerRegistryTest : public testing::Test {
 protected:
  static std::shared_ptr<const Worker> NewWorker(WorkerRole role, uint64_t id,
                                                 uint32_t context_tokens = 1024) {
    auto worker = std::make_shared<Worker>();
    worker->hello = {.incarnation = {.high = 1, .low = id},
                     .role = role,
                     .address = "here:1",
                     .compatibility_digest = "c",
                     .block_tokens = 16,
                     .context_tokens = context_tokens,
                     .blocks_total = 64,
                     .running_sequences_max = 2,
                     .chunk_tokens = 512};
    worker->connection = std::make_shared<SilentConnection>();
    return worker;
  }

  std::shared_ptr<const Worker> Add(WorkerRole role, uint64_t id, uint32_t context_tokens = 1024) {
    const auto worker = NewWorker(role, id, context_tokens);
    EXPECT_TRUE(registry_.Attach(worker).ok());
    registry_.Report(worker->hello.incarnation, Idle());
    return worker;
  }

  static LoadReport Idle() {
    return {.blocks_free = 64,
            .prefill_tokens_per_second = 1000,
            .decode_step = absl::Milliseconds(20)};
  }

  absl::StatusCode PlaceCode() {
    return registry_.Place({.prompt_tokens = 100, .max_tokens = 10}, {}).status().code();
  }

  WorkerState StateOf(size_t index) { return registry_.List().at(index).state; }

  // Time passes, and is looked at, in small steps.
  void Pass(absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Milliseconds(100)) {
      clock_.Advance(absl::Milliseconds(100));
      dead_ = registry_.FindDead();
    }
  }

  base::ManualClock clock_;
  WorkerRegistry registry_{{.workers_max = 3}, clock_};
  std::vector<std::shared_ptr<const Worker>> dead_;
};

TEST_F(WorkerRegistryTest, TakesEachIncarnationOnceAndSoMany) {
  Add(WorkerRole::kPrefill, 1);
  EXPECT_EQ(registry_.Attach(NewWorker(WorkerRole::kPrefill, 1)).code(),
            absl::StatusCode::kAlreadyExists);
  Add(WorkerRole::kDecode, 2);
  Add(WorkerRole::kDecode, 3);
  EXPECT_EQ(registry_.Attach(NewWorker(WorkerRole::kDecode, 4)).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(WorkerRegistryTest, AWorkerTakesWorkFromItsFirstReportOn) {
  Add(WorkerRole::kPrefill, 1);
  const auto decode = NewWorker(WorkerRole::kDecode, 2);
  ASSERT_TRUE(registry_.Attach(decode).ok());
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kResourceExhausted);
  registry_.Report(decode->hello.incarnation, Idle());
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kOk);
}

TEST_F(WorkerRegistryTest, DetachedOnlyByItsOwnConnection) {
  const auto worker = Add(WorkerRole::kPrefill, 1);
  EXPECT_EQ(registry_.Detach(worker->hello.incarnation, SilentConnection()), nullptr);
  EXPECT_EQ(registry_.Detach(worker->hello.incarnation, *worker->connection), worker);
  EXPECT_EQ(registry_.Detach(worker->hello.incarnation, *worker->connection), nullptr);
  EXPECT_TRUE(registry_.List().empty());
}

TEST_F(WorkerRegistryTest, OwnPlacementsCountBeforeTheyAreReported) {
  Add(WorkerRole::kPrefill, 1);
  Add(WorkerRole::kPrefill, 2);
  Add(WorkerRole::kDecode, 3);
  const auto first = registry_.Place({.prompt_tokens = 500, .max_tokens = 10}, {});
  const auto second = registry_.Place({.prompt_tokens = 500, .max_tokens = 10}, {});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->prefill, second->prefill);
  // Two sequences are as many as the decode worker runs.
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kResourceExhausted);
  registry_.EndPrefill(*first->prefill, 500);
  registry_.EndDecode(*first->decode, /*was_admitted=*/true);
  const auto third = registry_.Place({.prompt_tokens = 100, .max_tokens = 10}, {});
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->prefill, first->prefill);
}

TEST_F(WorkerRegistryTest, AReportOfOwnWorkIsNotCountedTwice) {
  Add(WorkerRole::kPrefill, 1);
  const auto decode = Add(WorkerRole::kDecode, 2);
  ASSERT_EQ(PlaceCode(), absl::StatusCode::kOk);
  LoadReport report = Idle();
  report.running_sequences = 1;
  registry_.Report(decode->hello.incarnation, report);
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kOk);
  // Another router's sequence fills it.
  registry_.EndDecode(*decode, /*was_admitted=*/true);
  report.running_sequences = 2;
  registry_.Report(decode->hello.incarnation, report);
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kResourceExhausted);
}

TEST_F(WorkerRegistryTest, ARefusalHoldsUntilTheNextReport) {
  Add(WorkerRole::kPrefill, 1);
  const auto decode = Add(WorkerRole::kDecode, 2);
  registry_.NoteRefusal(*decode, 110);
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(registry_.Place({.prompt_tokens = 50, .max_tokens = 10}, {}).ok());
  registry_.Report(decode->hello.incarnation, Idle());
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kOk);
}

// Else each refusal would let all the others try again, in vain.
TEST_F(WorkerRegistryTest, OnlyTheEndOfWhatHadRoomMakesRoom) {
  Add(WorkerRole::kPrefill, 1);
  const auto decode = Add(WorkerRole::kDecode, 2);
  ASSERT_EQ(PlaceCode(), absl::StatusCode::kOk);
  ASSERT_EQ(PlaceCode(), absl::StatusCode::kOk);
  registry_.NoteRefusal(*decode, 110);
  registry_.EndDecode(*decode, /*was_admitted=*/false);
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kResourceExhausted);
  registry_.EndDecode(*decode, /*was_admitted=*/true);
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kOk);
}

TEST_F(WorkerRegistryTest, AWorkerThatCameBackCountsFromNought) {
  Add(WorkerRole::kPrefill, 1);
  const auto decode = Add(WorkerRole::kDecode, 2);
  ASSERT_EQ(PlaceCode(), absl::StatusCode::kOk);
  registry_.Detach(decode->hello.incarnation, *decode->connection);
  Add(WorkerRole::kDecode, 2);
  registry_.EndDecode(*decode, /*was_admitted=*/true);  // Of the attachment before: no underflow.
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kOk);
}

TEST_F(WorkerRegistryTest, ExcludedWorkersAreNotPlacedOn) {
  const auto prefill = Add(WorkerRole::kPrefill, 1);
  Add(WorkerRole::kDecode, 2);
  EXPECT_EQ(registry_.Place({.prompt_tokens = 1, .max_tokens = 10}, {prefill->hello.incarnation})
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(WorkerRegistryTest, DrainingWorkersAreNotPlacedOn) {
  Add(WorkerRole::kPrefill, 1);
  const auto decode = Add(WorkerRole::kDecode, 2);
  registry_.SetDraining(decode->hello.incarnation);
  EXPECT_EQ(PlaceCode(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StateOf(1), WorkerState::kDraining);
}

TEST_F(WorkerRegistryTest, SilenceMakesAWorkerSuspectThenDead) {
  const auto worker = Add(WorkerRole::kPrefill, 1);
  Pass(absl::Milliseconds(1400));
  EXPECT_EQ(StateOf(0), WorkerState::kReady);
  Pass(absl::Milliseconds(200));
  EXPECT_EQ(StateOf(0), WorkerState::kSuspect);
  registry_.Report(worker->hello.incarnation, Idle());
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(StateOf(0), WorkerState::kReady);
  Pass(absl::Milliseconds(2800));
  EXPECT_TRUE(dead_.empty());
  Pass(absl::Milliseconds(200));
  ASSERT_EQ(dead_.size(), 1u);
  EXPECT_EQ(dead_[0], worker);
}

TEST_F(WorkerRegistryTest, AStepWithoutEndMakesAWorkerSuspectWhateverItReports) {
  const auto worker = Add(WorkerRole::kDecode, 1);
  LoadReport report = Idle();
  // Four times (512 tokens at 1000 a second + 20 ms) are expected: 2.128 s.
  report.current_step_age = absl::Seconds(3);
  registry_.Report(worker->hello.incarnation, report);
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(StateOf(0), WorkerState::kReady);
  report.current_step_age = absl::Seconds(4);
  registry_.Report(worker->hello.incarnation, report);
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(StateOf(0), WorkerState::kSuspect);
  report.current_step_age = absl::Milliseconds(5200);
  registry_.Report(worker->hello.incarnation, report);
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(dead_.size(), 1u);
}

TEST_F(WorkerRegistryTest, APauseOfTheRouterItselfBlamesNoWorker) {
  Add(WorkerRole::kPrefill, 1);
  Pass(absl::Milliseconds(100));
  clock_.Advance(absl::Seconds(60));
  EXPECT_TRUE(registry_.FindDead().empty());
  EXPECT_EQ(StateOf(0), WorkerState::kReady);
}

TEST_F(WorkerRegistryTest, TheShortestContextRules) {
  EXPECT_EQ(registry_.context_tokens(), 0u);
  Add(WorkerRole::kPrefill, 1, 2048);
  Add(WorkerRole::kDecode, 2, 512);
  EXPECT_EQ(registry_.context_tokens(), 512u);
}

}  // namespace
}  // namespace baton::router
