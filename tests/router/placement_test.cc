#include "router/placement.h"

#include <map>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

WorkerLoad Prefill(uint64_t queued_tokens, double rate = 1000, uint32_t compatibility = 1) {
  return {.prefills = true,
          .accepting = true,
          .compatibility = compatibility,
          .prefill_rate = rate,
          .queued_tokens = queued_tokens,
          .tokens_free = 100000,
          .tokens_total = 100000};
}

WorkerLoad Decode(uint32_t running, uint64_t tokens_free = 100000, uint32_t compatibility = 1) {
  return {.decodes = true,
          .accepting = true,
          .compatibility = compatibility,
          .running_sequences = running,
          .running_sequences_max = 64,
          .decode_step_seconds = 0.02,
          .tokens_free = tokens_free,
          .tokens_total = 100000};
}

WorkerLoad With(WorkerLoad worker, void (*change)(WorkerLoad&)) {
  change(worker);
  return worker;
}
WorkerLoad NotAccepting(WorkerLoad worker) {
  return With(worker, [](WorkerLoad& w) { w.accepting = false; });
}
WorkerLoad Local(WorkerLoad worker) {
  return With(worker, [](WorkerLoad& w) { w.local_prefill = true; });
}
WorkerLoad Refused(WorkerLoad worker, uint64_t tokens) {
  worker.refused_tokens = tokens;
  return worker;
}

constexpr int kNone = -1;

struct PlacementCase {
  std::string name;
  uint32_t max_tokens;
  std::vector<WorkerLoad> workers;
  int prefill;
  int decode;
};

class PlacementTest : public testing::TestWithParam<PlacementCase> {};

TEST_P(PlacementTest, PicksTheCheapestPair) {
  const PlacementCase& c = GetParam();
  for (uint64_t draw = 0; draw < 20; ++draw) {
    const auto placed = Place({.prompt_tokens = 1000, .max_tokens = c.max_tokens}, c.workers, draw);
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_EQ(placed->prefill.has_value() ? static_cast<int>(*placed->prefill) : kNone, c.prefill);
    EXPECT_EQ(placed->decode.has_value() ? static_cast<int>(*placed->decode) : kNone, c.decode);
  }
}

const PlacementCase kCases[] = {
    {"OnePair", 64, {Prefill(0), Decode(0)}, 0, 1},
    {"ShorterQueueWins", 64, {Prefill(900), Prefill(100), Decode(0)}, 1, 2},
    {"FasterWorkerBeatsShorterQueue", 64, {Prefill(1000, 4000), Prefill(0, 500), Decode(0)}, 0, 2},
    {"EmptierBatchWins", 64, {Prefill(0), Decode(40), Decode(3)}, 0, 2},
    {"FullKvLoses", 64, {Prefill(0), Decode(0, 100), Decode(40)}, 0, 2},
    {"FullBatchIsSkipped", 64, {Prefill(0), Decode(64), Decode(63)}, 0, 2},
    {"GroupsDoNotMix",
     64,
     {Prefill(0, 1000, 1), Prefill(900, 1000, 2), Decode(0, 100000, 2)},
     1,
     2},
    {"DecodeWithoutPartnerIsSkipped", 64, {Decode(0, 100000, 2), Decode(60), Prefill(0)}, 2, 1},
    {"SuspectIsSkipped", 64, {NotAccepting(Prefill(0)), Prefill(5000), Decode(0)}, 1, 2},
    {"RefusedIsSkipped", 64, {Prefill(0), Refused(Decode(0), 1064), Decode(50)}, 0, 2},
    {"SmallerThanRefusedIsTried", 64, {Prefill(0), Refused(Decode(0), 1065), Decode(50)}, 0, 1},
    {"OneTokenNeedsNoDecode", 1, {Prefill(0), Decode(0)}, 0, kNone},
    {"OneTokenWithoutDecodeWorkers", 1, {Prefill(0)}, 0, kNone},
    {"LocalPrefillWithoutPrefillWorker", 64, {Local(Decode(0))}, kNone, 0},
    {"LocalPrefillForOneToken", 1, {Local(Decode(0))}, kNone, 0},
    {"LocalPrefillOnlyWhereNoPair", 64, {Local(Decode(0)), Prefill(5000)}, 1, 0},
    {"LocalPrefillWhenPrefillIsSuspect",
     64,
     {Local(Decode(0)), NotAccepting(Prefill(0))},
     kNone,
     0},
};
INSTANTIATE_TEST_SUITE_P(Cases, PlacementTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

struct ErrorCase {
  std::string name;
  uint32_t max_tokens;
  std::vector<WorkerLoad> workers;
  absl::StatusCode code;
};
class PlacementErrorTest : public testing::TestWithParam<ErrorCase> {};

TEST_P(PlacementErrorTest, SaysWhetherToWait) {
  const auto placed =
      Place({.prompt_tokens = 1000, .max_tokens = GetParam().max_tokens}, GetParam().workers, 1);
  EXPECT_EQ(placed.status().code(), GetParam().code) << placed.status();
}

WorkerLoad Tiny(WorkerLoad worker) {
  worker.tokens_total = 900;
  return worker;
}

const ErrorCase kErrorCases[] = {
    {"Nobody", 64, {}, absl::StatusCode::kUnavailable},
    {"NoDecode", 64, {Prefill(0)}, absl::StatusCode::kUnavailable},
    {"NoPrefill", 64, {Decode(0)}, absl::StatusCode::kUnavailable},
    {"NoneForOneToken", 1, {Decode(0)}, absl::StatusCode::kUnavailable},
    {"NoMatchingPair",
     64,
     {Prefill(0, 1000, 1), Decode(0, 1000, 2)},
     absl::StatusCode::kUnavailable},
    {"AllFull", 64, {Prefill(0), Decode(64)}, absl::StatusCode::kResourceExhausted},
    {"AllSuspect", 64, {NotAccepting(Prefill(0)), Decode(0)}, absl::StatusCode::kResourceExhausted},
    {"AllRefused", 64, {Prefill(0), Refused(Decode(0), 10)}, absl::StatusCode::kResourceExhausted},
    {"NeverFits", 64, {Prefill(0), Tiny(Decode(0))}, absl::StatusCode::kOutOfRange},
};
INSTANTIATE_TEST_SUITE_P(Cases, PlacementErrorTest, testing::ValuesIn(kErrorCases),
                         [](const auto& info) { return info.param.name; });

TEST(Placement, EqualWorkersShareByTheDraw) {
  std::vector<WorkerLoad> workers;
  for (int i = 0; i < 8; ++i) workers.push_back(Prefill(0));
  for (int i = 0; i < 8; ++i) workers.push_back(Decode(0));
  std::map<uint32_t, int> prefills, decodes;
  for (uint64_t draw = 0; draw < 800; ++draw) {
    const auto placed = Place({.prompt_tokens = 100, .max_tokens = 10}, workers, draw);
    ASSERT_TRUE(placed.ok());
    ++prefills[*placed->prefill];
    ++decodes[*placed->decode];
  }
  ASSERT_EQ(prefills.size(), 8u);
  ASSERT_EQ(decodes.size(), 8u);
  for (const auto& [index, count] : prefills) EXPECT_GT(count, 50) << index;
  for (const auto& [index, count] : decodes) EXPECT_GT(count, 50) << index;
}

TEST(Placement, TheSameDrawGivesTheSamePlace) {
  const std::vector<WorkerLoad> workers = {Prefill(0), Prefill(0), Decode(0), Decode(0)};
  for (uint64_t draw = 0; draw < 20; ++draw) {
    const auto a = Place({.prompt_tokens = 100, .max_tokens = 10}, workers, draw);
    const auto b = Place({.prompt_tokens = 100, .max_tokens = 10}, workers, draw);
    EXPECT_EQ(a->prefill, b->prefill);
    EXPECT_EQ(a->decode, b->decode);
  }
}

TEST(Placement, TermsAreSeconds) {
  const auto placed =
      Place({.prompt_tokens = 1000, .max_tokens = 10}, {{Prefill(500), Decode(0)}}, 1);
  ASSERT_TRUE(placed.ok());
  EXPECT_DOUBLE_EQ(placed->ttft_seconds, 1.5);
  EXPECT_DOUBLE_EQ(placed->memory_seconds, 0);
  EXPECT_NEAR(placed->tpot_seconds, 0.02 / 64, 1e-9);
}

}  // namespace
}  // namespace baton::router
