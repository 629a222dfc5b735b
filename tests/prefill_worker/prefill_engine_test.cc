// What the prefill engine takes, refuses and says alone; hand-offs are in tests/worker/engine_pair_test.cc.
#include "prefill_worker/prefill_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "tests/fakes/engine_pair.h"

namespace baton::prefill_worker {
namespace {

using fakes::EnginePair;
using fakes::EnginePairOptions;
using fakes::Heard;
using testing::HasSubstr;

// Spins until `deadline` has passed: the gate holds everything else.
void WaitUntilPast(absl::Time deadline) {
  while (absl::Now() <= deadline) absl::SleepFor(absl::Microseconds(100));
}

TEST(PrefillEngine, TheQueueIsBoundedInRequests) {
  EnginePairOptions options;
  options.prefill.queue_max = {.requests = 3, .tokens = 1000};
  EnginePair pair(options);
  pair.prefill_gate().Close();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pair.PrefillAlone(pair.MakeRequest(10, 1)).ok());
  const absl::Status full = pair.PrefillAlone(pair.MakeRequest(10, 1));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("at most 3"));
  pair.prefill_gate().Open();
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_TRUE(pair.PrefillAlone(pair.MakeRequest(10, 1)).ok()) << "the refused one left no trace";
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(PrefillEngine, TheQueueIsBoundedInTokens) {
  EnginePairOptions options;
  options.prefill.queue_max = {.requests = 100, .tokens = 100};
  EnginePair pair(options);
  pair.prefill_gate().Close();
  ASSERT_TRUE(pair.PrefillAlone(pair.MakeRequest(200, 1)).ok()) << "one always fits";
  EXPECT_EQ(pair.PrefillAlone(pair.MakeRequest(1, 1)).code(),
            absl::StatusCode::kResourceExhausted);
  pair.prefill_gate().Open();
  EXPECT_TRUE(pair.WaitUntilIdle());
  pair.prefill_gate().Close();
  ASSERT_TRUE(pair.PrefillAlone(pair.MakeRequest(60, 1)).ok());
  ASSERT_TRUE(pair.PrefillAlone(pair.MakeRequest(40, 1)).ok());
  EXPECT_EQ(pair.PrefillAlone(pair.MakeRequest(1, 1)).code(),
            absl::StatusCode::kResourceExhausted);
  pair.prefill_gate().Open();
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(PrefillEngine, ACancelledPromptLeavesTheQueue) {
  EnginePairOptions options;
  options.prefill.queue_max = {.requests = 2, .tokens = 1000};
  EnginePair pair(options);
  pair.prefill_gate().Close();
  ASSERT_TRUE(pair.PrefillAlone(pair.MakeRequest(10, 1)).ok());
  pair.prefill_gate().WaitUntilAtGate();
  const worker::EngineRequest queued = pair.MakeRequest(10, 1);
  ASSERT_TRUE(pair.PrefillAlone(queued).ok());
  pair.Cancel(queued.key);
  pair.prefill_gate().Open();
  EXPECT_TRUE(pair.WaitUntilIdle());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pair.PrefillAlone(pair.MakeRequest(10, 1)).ok());
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(PrefillEngine, APromptThatCanNeverFitIsRefusedAtOnce) {
  EnginePairOptions options;
  options.prefill_blocks = 4;  // 32 tokens.
  EnginePair pair(options);
  EXPECT_TRUE(pair.PrefillAlone(pair.MakeRequest(32, 1)).ok());
  const absl::Status status = pair.PrefillAlone(pair.MakeRequest(33, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 5 KV blocks, this worker has 4"));
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(PrefillEngine, SeveralTokensNeedADecodeWorker) {
  EnginePair pair;
  EXPECT_EQ(pair.PrefillAlone(pair.MakeRequest(10, 2)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PrefillEngine, AnAttemptRunsOnce) {
  EnginePair pair;
  const worker::EngineRequest request = pair.MakeRequest(10, 1);
  ASSERT_TRUE(pair.PrefillAlone(request).ok());
  EXPECT_EQ(pair.PrefillAlone(request).code(), absl::StatusCode::kAlreadyExists);
  pair.Await(request.key);
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_EQ(pair.PrefillAlone(request).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(pair.routers().heard(request.key).events.size(), 1u);
}

TEST(PrefillEngine, ACancelThatOvertookItsPromptStopsIt) {
  EnginePair pair;
  const worker::EngineRequest request = pair.MakeRequest(10, 1);
  pair.Cancel(request.key);
  EXPECT_EQ(pair.PrefillAlone(request).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(PrefillEngine, AForeignRouterCannotCancel) {
  EnginePair pair;
  pair.prefill_gate().Close();
  const worker::EngineRequest request = pair.MakeRequest(10, 1);
  ASSERT_TRUE(pair.PrefillAlone(request).ok());
  pair.prefill().Cancel({1, 2}, request.key);
  pair.prefill_gate().Open();
  EXPECT_EQ(pair.Await(request.key).ids(), pair.Reference(request));
  EXPECT_TRUE(pair.WaitUntilIdle());
}

TEST(PrefillEngine, ADeadlineInTheQueueOrInAChunkEndsItByTheNextStep) {
  EnginePair pair;
  pair.prefill_gate().Close();
  worker::EngineRequest computing = pair.MakeRequest(80, 5);
  computing.time_left = absl::Milliseconds(1);
  ASSERT_TRUE(pair.Prefill(computing).ok());
  worker::EngineRequest queued = pair.MakeRequest(80, 5);
  queued.time_left = absl::Milliseconds(1);
  ASSERT_TRUE(pair.Prefill(queued).ok());
  WaitUntilPast(absl::Now() + absl::Milliseconds(1));
  pair.prefill_gate().Open();
  for (const auto& key : {computing.key, queued.key}) {
    const Heard heard = pair.Await(key);
    ASSERT_EQ(heard.errors.size(), 1u);
    EXPECT_EQ(heard.errors[0].code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(heard.tokens.empty());
  }
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_TRUE(pair.PoolsAreFree());
}

TEST(PrefillEngine, LoadShowsTheQueueAndTheStepUnderWay) {
  EnginePair pair;
  pair.prefill_gate().Close();
  ASSERT_TRUE(pair.PrefillAlone(pair.MakeRequest(40, 1)).ok());
  pair.prefill_gate().WaitUntilAtGate();
  ASSERT_TRUE(pair.PrefillAlone(pair.MakeRequest(7, 1)).ok());
  worker::WorkerLoad load = pair.prefill().load();
  EXPECT_EQ(load.queued_tokens, 47u);
  EXPECT_EQ(load.queued_requests, 2u);
  EXPECT_TRUE(load.current_step_age.has_value());
  EXPECT_EQ(load.step_count, 0u);
  pair.prefill_gate().LetOneStep();
  load = pair.prefill().load();
  EXPECT_EQ(load.step_count, 1u);
  EXPECT_EQ(load.queued_tokens, 40u - 16u + 7u);
  EXPECT_GT(load.prefill_tokens_per_second, 0);
  pair.prefill_gate().Open();
  EXPECT_TRUE(pair.WaitUntilIdle());
  ASSERT_TRUE(pair.routers().WaitUntil(
      [&] { return !pair.prefill().load().current_step_age.has_value(); }));
  load = pair.prefill().load();
  EXPECT_EQ(load.queued_tokens, 0u);
  EXPECT_EQ(load.blocks_free, 128u);
}

TEST(PrefillEngine, BlocksPinnedForASlowPeerAreShownAndHoldBackNoOther) {
  EnginePairOptions options;
  options.prefill_blocks = 8;
  EnginePair pair(options);
  pair.handoff().Hold();
  const worker::EngineRequest slow = pair.MakeRequest(40, 2);  // Five blocks of eight.
  ASSERT_TRUE(pair.Admit(slow).ok());
  ASSERT_TRUE(pair.Prefill(slow).ok());
  ASSERT_TRUE(
      pair.routers().WaitUntil([&] { return pair.prefill().load().blocks_pinned == 5; }));
  const worker::EngineRequest fits = pair.MakeRequest(20, 1);
  ASSERT_TRUE(pair.PrefillAlone(fits).ok());
  EXPECT_EQ(pair.Await(fits.key).ids(), pair.Reference(fits));
  const worker::EngineRequest waits = pair.MakeRequest(40, 1);
  ASSERT_TRUE(pair.PrefillAlone(waits).ok());
  pair.handoff().Release();
  EXPECT_EQ(pair.Await(waits.key).ids(), pair.Reference(waits));
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_TRUE(pair.PoolsAreFree());
}

}  // namespace
}  // namespace baton::prefill_worker
