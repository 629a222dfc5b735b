// Both engines together: whichever way a request goes, the same tokens; whatever happens to it, no block is lost.
#include "tests/fakes/engine_pair.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton::fakes {
namespace {

using runner::FinishReason;

absl::Status Start(EnginePair& pair, const worker::EngineRequest& request) {
  const absl::Status admitted = pair.Admit(request);
  return admitted.ok() ? pair.Prefill(request) : admitted;
}

void ExpectAllGivenBack(EnginePair& pair) {
  EXPECT_TRUE(pair.WaitUntilIdle());
  EXPECT_TRUE(pair.PoolsAreFree());
}

TEST(EnginePair, DisaggregatedEqualsLocalEqualsRunner) {
  EnginePair pair;
  std::vector<worker::EngineRequest> handed, local;
  // Lengths about the block (8) and the chunk (16); all at once, so that batches mix.
  for (const uint32_t prompt : {1, 7, 8, 9, 15, 16, 17, 40, 100}) {
    for (const uint32_t output : {2, 3, 30}) {
      worker::EngineRequest request = pair.MakeRequest(prompt, output);
      request.sampling.temperature = output == 30 ? 0.9f : 0.0f;
      request.sampling.seed = prompt;
      request.sampling.logprobs = 2;
      handed.push_back(request);
      request.key = pair.MakeRequest(1, 1).key;
      local.push_back(request);
    }
  }
  for (size_t i = 0; i < handed.size(); ++i) {
    const auto room = [&](const worker::EngineRequest& request, bool disaggregated) {
      // A full decode worker says so; a router would try again.
      return pair.routers().WaitUntil([&] {
        const absl::Status status =
            disaggregated ? pair.Admit(request) : pair.AdmitLocal(request);
        EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
        return status.ok();
      });
    };
    ASSERT_TRUE(room(handed[i], true));
    ASSERT_TRUE(pair.Prefill(handed[i]).ok());
    ASSERT_TRUE(room(local[i], false));
  }
  for (size_t i = 0; i < handed.size(); ++i) {
    const std::vector<uint32_t> want = pair.Reference(handed[i]);
    const Heard through_both = pair.Await(handed[i].key);
    const Heard alone = pair.Await(local[i].key);
    EXPECT_EQ(through_both.ids(), want) << "request " << i;
    EXPECT_EQ(alone.ids(), want) << "request " << i;
    EXPECT_EQ(through_both.finish, FinishReason::kLength);
    for (const auto& [position, token] : through_both.tokens) {
      EXPECT_TRUE(token.logprobs == alone.tokens.at(position).logprobs) << "at " << position;
    }
  }
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, TheFirstTokenIsToldTwiceAndReportsOnce) {
  EnginePair pair;
  worker::EngineRequest request = pair.MakeRequest(20, 5);
  request.prompt_logprobs = 1;
  ASSERT_TRUE(Start(pair, request).ok());
  const Heard heard = pair.Await(request.key);
  ASSERT_EQ(heard.events.size(), 5u) << "one of the prefill worker, four of the decode worker";
  const worker::TokenEvent& prefill = heard.events[0];
  EXPECT_EQ(prefill.position, 0u);
  EXPECT_EQ(prefill.tokens.size(), 1u);
  EXPECT_TRUE(prefill.prefill_report.has_value());
  EXPECT_FALSE(prefill.decode_report.has_value());
  EXPECT_EQ(prefill.prompt_logprobs.size(), 20u);
  const worker::TokenEvent& decode = heard.events[1];
  EXPECT_EQ(decode.position, 0u);
  EXPECT_EQ(decode.tokens.size(), 2u);
  EXPECT_TRUE(decode.decode_report.has_value());
  EXPECT_FALSE(decode.prefill_report.has_value());
  for (size_t i = 2; i < heard.events.size(); ++i) {
    EXPECT_EQ(heard.events[i].position, i);
    EXPECT_FALSE(heard.events[i].decode_report.has_value());
  }
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, AContinuedAnswerGoesOnWhereItWas) {
  EnginePair pair;
  worker::EngineRequest whole = pair.MakeRequest(20, 12);
  whole.sampling.temperature = 1.0f;
  whole.sampling.repetition_penalty = 1.5f;
  const std::vector<uint32_t> want = pair.Reference(whole);
  worker::EngineRequest rest = whole;
  rest.tokens.insert(rest.tokens.end(), want.begin(), want.begin() + 5);
  rest.key.attempt = 2;
  ASSERT_TRUE(Start(pair, rest).ok());
  const Heard heard = pair.Await(rest.key);
  EXPECT_EQ(heard.tokens.begin()->first, 5u);
  EXPECT_EQ(heard.ids(), std::vector<uint32_t>(want.begin() + 5, want.end()));
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, OneTokenNeedsNoDecodeWorker) {
  EnginePair pair;
  const worker::EngineRequest request = pair.MakeRequest(20, 1);
  ASSERT_TRUE(pair.PrefillAlone(request).ok());
  const Heard heard = pair.Await(request.key);
  EXPECT_EQ(heard.ids(), pair.Reference(request));
  EXPECT_EQ(heard.ids().size(), 1u);
  EXPECT_EQ(heard.finish, FinishReason::kLength);
  EXPECT_EQ(pair.handoff().sealed(), 0u);
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, AStopAtTheFirstTokenEndsBothSides) {
  EnginePairOptions options;
  options.model.forced = {{.position = 20, .token = 77}};
  EnginePair pair(options);
  worker::EngineRequest request = pair.MakeRequest(20, 10);
  request.stop_token_ids = {77};
  ASSERT_TRUE(Start(pair, request).ok());
  const Heard heard = pair.Await(request.key);
  EXPECT_EQ(heard.ids(), std::vector<uint32_t>{77});
  EXPECT_EQ(heard.finish, FinishReason::kStop);
  ExpectAllGivenBack(pair);
  EXPECT_EQ(pair.routers().heard(request.key).events.size(), 1u) << "the decode worker says nothing";
}

TEST(EnginePair, AFullPoolPreemptsAndTheTokensStayTheSame) {
  EnginePairOptions options;
  options.decode_blocks = 14;
  options.decode.headroom_tokens = 8;
  EnginePair pair(options);
  std::vector<worker::EngineRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(pair.MakeRequest(16, 60));
  for (const auto& request : requests) ASSERT_TRUE(Start(pair, request).ok());
  for (const auto& request : requests) {
    EXPECT_EQ(pair.Await(request.key).ids(), pair.Reference(request));
  }
  ExpectAllGivenBack(pair);
  EXPECT_NE(pair.metrics().Text().find("baton_worker_preemptions_total{role=\"decode\"}"),
            std::string::npos);
  EXPECT_EQ(pair.metrics().Text().find("baton_worker_preemptions_total{role=\"decode\"} 0"),
            std::string::npos)
      << "nothing was preempted: the test is too easy";
}

// A cancel in each state an attempt can be in.

TEST(EnginePairCancel, WhileQueued) {
  EnginePair pair;
  pair.prefill_gate().Close();
  const worker::EngineRequest busy = pair.MakeRequest(20, 5);
  ASSERT_TRUE(Start(pair, busy).ok());
  pair.prefill_gate().WaitUntilAtGate();
  const worker::EngineRequest queued = pair.MakeRequest(20, 5);
  ASSERT_TRUE(Start(pair, queued).ok());
  pair.Cancel(queued.key);
  pair.prefill_gate().Open();
  EXPECT_EQ(pair.Await(busy.key).ids(), pair.Reference(busy));
  ExpectAllGivenBack(pair);
  EXPECT_TRUE(pair.routers().heard(queued.key).events.empty());
}

TEST(EnginePairCancel, BetweenAnyTwoChunks) {
  for (int chunk = 0; chunk < 5; ++chunk) {
    EnginePair pair;
    pair.prefill_gate().Close();
    const worker::EngineRequest request = pair.MakeRequest(80, 5);  // Five chunks.
    ASSERT_TRUE(Start(pair, request).ok());
    pair.prefill_gate().WaitUntilAtGate();
    for (int i = 0; i < chunk; ++i) pair.prefill_gate().LetOneStep();
    pair.Cancel(request.key);
    pair.prefill_gate().Open();
    ExpectAllGivenBack(pair);
    // In the last chunk the token was being drawn already.
    EXPECT_EQ(pair.routers().heard(request.key).events.size(), chunk == 4 ? 1u : 0u) << chunk;
  }
}

TEST(EnginePairCancel, WhileSealedAndNotCopied) {
  EnginePair pair;
  pair.handoff().Hold();
  const worker::EngineRequest request = pair.MakeRequest(20, 5);
  ASSERT_TRUE(Start(pair, request).ok());
  ASSERT_TRUE(pair.routers().WaitUntil([&] { return pair.handoff().sealed() == 1; }));
  ASSERT_TRUE(pair.routers().WaitUntil([&] { return pair.prefill().load().blocks_pinned == 3; }));
  pair.Cancel(request.key);
  ExpectAllGivenBack(pair);
  // The decode worker may hear of it from the prefill worker first, and say so.
  EXPECT_EQ(pair.routers().heard(request.key).tokens.size(), 1u);
}

TEST(EnginePairCancel, WhileExpectedAndNeverPrefilled) {
  EnginePair pair;
  for (int i = 0; i < 200; ++i) {
    const worker::EngineRequest request = pair.MakeRequest(20, 5);
    ASSERT_TRUE(pair.Admit(request).ok()) << "at " << i;
    pair.Cancel(request.key);
    ASSERT_TRUE(pair.decode().WaitUntilIdle(absl::Seconds(10))) << "at " << i;
  }
  ExpectAllGivenBack(pair);
}

TEST(EnginePairCancel, WhileDecoding) {
  EnginePair pair;
  pair.decode_gate().Close();
  const worker::EngineRequest request = pair.MakeRequest(20, 50);
  const worker::EngineRequest other = pair.MakeRequest(9, 20);
  ASSERT_TRUE(Start(pair, request).ok());
  ASSERT_TRUE(Start(pair, other).ok());
  pair.decode_gate().WaitUntilAtGate();
  pair.decode_gate().LetOneStep();
  pair.Cancel(request.key);
  pair.decode_gate().Open();
  EXPECT_EQ(pair.Await(other.key).ids(), pair.Reference(other));
  ExpectAllGivenBack(pair);
  EXPECT_EQ(pair.routers().heard(request.key).finish, FinishReason::kNone);
  EXPECT_LE(pair.routers().heard(request.key).tokens.size(), 3u) << "by the next step";
}

TEST(EnginePairCancel, WhileDecodingWhatWasPrefilledHere) {
  EnginePair pair;
  for (int steps = 0; steps < 8; ++steps) {
    pair.decode_gate().Close();
    const worker::EngineRequest request = pair.MakeRequest(40, 50);
    ASSERT_TRUE(pair.AdmitLocal(request).ok());
    pair.decode_gate().WaitUntilAtGate();
    for (int i = 0; i < steps; ++i) pair.decode_gate().LetOneStep();
    pair.Cancel(request.key);
    pair.decode_gate().Open();
    ExpectAllGivenBack(pair);
  }
}

TEST(EnginePairCancel, ThreeHundredAtOnceInWhateverState) {
  EnginePairOptions options;
  options.decode.runner.running_max = 64;
  EnginePair pair(options);
  for (int round = 0; round < 5; ++round) {
    std::vector<worker::EngineRequest> started;
    for (int i = 0; i < 300; ++i) {
      const worker::EngineRequest request = pair.MakeRequest(1 + i % 50, 30);
      if (Start(pair, request).ok()) started.push_back(request);
    }
    EXPECT_GE(started.size(), 8u);
    for (const auto& request : started) pair.Cancel(request.key);
    ExpectAllGivenBack(pair);
    const worker::EngineRequest probe = pair.MakeRequest(30, 5);
    ASSERT_TRUE(Start(pair, probe).ok());
    EXPECT_EQ(pair.Await(probe.key).ids(), pair.Reference(probe));
  }
}

TEST(EnginePair, ARouterThatGoesAwayTakesItsRequestsAlong) {
  EnginePair pair;
  const base::Id128 gone{91, 92};
  std::vector<worker::EngineRequest> its;
  for (int i = 0; i < 4; ++i) {
    its.push_back(pair.MakeRequest(30 + i, 400));
    its.back().router = gone;
    ASSERT_TRUE(Start(pair, its.back()).ok());
  }
  const worker::EngineRequest other = pair.MakeRequest(20, 30);
  ASSERT_TRUE(Start(pair, other).ok());
  pair.routers().SetAttached(gone, false);
  pair.prefill().DropRouter(gone);
  pair.decode().DropRouter(gone);
  EXPECT_EQ(pair.Await(other.key).ids(), pair.Reference(other));
  ExpectAllGivenBack(pair);
  EXPECT_EQ(pair.Admit(its[0]).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(pair.Prefill(its[0]).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EnginePair, APrefillWorkerThatDiesFreesWhatWasHeldForIt) {
  EnginePair pair;
  pair.handoff().Hold();
  const worker::EngineRequest request = pair.MakeRequest(40, 5);
  ASSERT_TRUE(pair.Admit(request).ok());
  pair.handoff().KillSource();
  const Heard heard = pair.Await(request.key);
  ASSERT_EQ(heard.errors.size(), 1u);
  EXPECT_EQ(heard.errors[0].code(), absl::StatusCode::kUnavailable);
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, ADecodeWorkerThatDiesFreesWhatIsPinnedForIt) {
  EnginePair pair;
  pair.handoff().Hold();
  const worker::EngineRequest request = pair.MakeRequest(40, 5);
  ASSERT_TRUE(pair.Prefill(request).ok());
  ASSERT_TRUE(pair.routers().WaitUntil([&] { return pair.handoff().sealed() == 1; }));
  pair.handoff().KillSink();
  const Heard heard = pair.Await(request.key);
  ASSERT_EQ(heard.errors.size(), 1u);
  EXPECT_EQ(heard.errors[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(heard.events.back().position, 1u) << "the first token had been told";
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, ADecodeWorkerThatDiesDuringPrefillStopsIt) {
  EnginePair pair;
  pair.prefill_gate().Close();
  const worker::EngineRequest request = pair.MakeRequest(80, 5);
  ASSERT_TRUE(pair.Prefill(request).ok());
  pair.prefill_gate().WaitUntilAtGate();
  pair.handoff().KillSink();
  ASSERT_TRUE(pair.routers().WaitUntil([&] { return pair.handoff().open_at_source() == 0; }));
  pair.prefill_gate().Open();
  const Heard heard = pair.Await(request.key);
  EXPECT_TRUE(heard.tokens.empty());
  ASSERT_EQ(heard.errors.size(), 1u);
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, OneFailedHandoffAmongManyFailsAlone) {
  EnginePair pair;
  pair.handoff().FailWith(absl::DataLossError("checksum"));
  const worker::EngineRequest bad = pair.MakeRequest(20, 5);
  ASSERT_TRUE(Start(pair, bad).ok());
  const Heard heard = pair.Await(bad.key);
  EXPECT_TRUE(pair.WaitUntilIdle());
  pair.handoff().FailWith(absl::OkStatus());
  EXPECT_EQ(pair.routers().heard(bad.key).tokens.size(), 1u);
  EXPECT_GE(heard.errors.size(), 1u);
  const worker::EngineRequest good = pair.MakeRequest(20, 5);
  ASSERT_TRUE(Start(pair, good).ok());
  EXPECT_EQ(pair.Await(good.key).ids(), pair.Reference(good));
  ExpectAllGivenBack(pair);
}

TEST(EnginePair, DrainFinishesWhatRunsAndTakesNothingNew) {
  EnginePair pair;
  pair.decode_gate().Close();
  const worker::EngineRequest running = pair.MakeRequest(20, 20);
  ASSERT_TRUE(Start(pair, running).ok());
  pair.decode_gate().WaitUntilAtGate();
  pair.prefill().Drain();
  pair.decode().Drain();
  const worker::EngineRequest late = pair.MakeRequest(20, 20);
  EXPECT_EQ(pair.Admit(late).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(pair.Prefill(late).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(pair.decode().WaitUntilIdle(absl::ZeroDuration()));
  pair.decode_gate().Open();
  ExpectAllGivenBack(pair);
  EXPECT_EQ(pair.routers().heard(running.key).ids(), pair.Reference(running));
}

TEST(EnginePair, WhatIsAbandonedEndsWithUnavailable) {
  EnginePair pair;
  pair.handoff().Hold();
  pair.decode_gate().Close();
  const worker::EngineRequest sealed = pair.MakeRequest(20, 20);
  const worker::EngineRequest local = pair.MakeRequest(20, 400);
  ASSERT_TRUE(Start(pair, sealed).ok());
  ASSERT_TRUE(pair.AdmitLocal(local).ok());
  ASSERT_TRUE(pair.routers().WaitUntil([&] { return pair.handoff().sealed() == 1; }));
  pair.decode_gate().WaitUntilAtGate();
  pair.prefill().Abandon();
  pair.decode().Abandon();
  pair.decode_gate().Open();
  ExpectAllGivenBack(pair);
  for (const auto& key : {sealed.key, local.key}) {
    const Heard heard = pair.Await(key);
    ASSERT_FALSE(heard.errors.empty());
    EXPECT_EQ(heard.errors[0].code(), absl::StatusCode::kUnavailable);
  }
}

TEST(EnginePair, StoppingWithWorkUnderWayLosesNoBlock) {
  for (int i = 0; i < 10; ++i) {
    EnginePair pair;
    for (int j = 0; j < 5; ++j) {
      const worker::EngineRequest request = pair.MakeRequest(10 * (j + 1), 100);
      ASSERT_TRUE(Start(pair, request).ok());
    }
  }  // The pools' destructors CHECK.
}

}  // namespace
}  // namespace baton::fakes
