// The planner's rules as a table: the names of the cases are the specification.
#include "runner/step_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton::runner {

// For the messages of failed comparisons.
void PrintTo(const StepPlan& plan, std::ostream* out) {
  const auto rows = [out](const char* name, const std::vector<PlannedRows>& list) {
    *out << name << " {";
    for (const PlannedRows& row : list) {
      *out << " {" << row.index << ", " << row.tokens << ", " << row.new_blocks << "}";
    }
    *out << " } ";
  };
  *out << "revoke {";
  for (const PlannedReservation& revoked : plan.revoke) {
    *out << " {" << revoked.index << ", " << revoked.blocks << "}";
  }
  *out << " } preempt " << testing::PrintToString(plan.preempt) << ' ';
  rows("decode", plan.decode);
  rows("resume", plan.resume);
  rows("start", plan.start);
  if (plan.reserve)
    *out << "reserve {" << plan.reserve->index << ", " << plan.reserve->blocks << "}";
}

namespace {

constexpr PlannerLimits kLimits = {.block_tokens = 4,
                                   .chunk_tokens = 16,
                                   .rows_max = 24,
                                   .running_max = 8,
                                   .prefill_packed_max = 3,
                                   .logit_rows_max = 6};

// A decoding sequence of so many tokens, whose blocks cover all but the last.
PlannerSequence Decoding(uint32_t tokens, uint32_t reserved = 0) {
  return {.tokens = tokens,
          .computed = tokens - 1,
          .blocks = BlocksFor(tokens - 1, kLimits.block_tokens),
          .reserved = reserved,
          .decoding = true};
}

// A prompt that was begun: it holds all its blocks.
PlannerSequence Begun(uint32_t tokens, uint32_t computed) {
  return {
      .tokens = tokens, .computed = computed, .blocks = BlocksFor(tokens, kLimits.block_tokens)};
}

PlannerSequence Waiting(uint32_t tokens, uint32_t reserved = 0) {
  return {.tokens = tokens, .reserved = reserved};
}

PlannerSequence HandedOff(PlannerSequence sequence) {
  sequence.grows = false;
  sequence.pinned = sequence.computed > 0;
  return sequence;
}

PlannerSequence WithAllLogits(PlannerSequence sequence) {
  sequence.all_logits = true;
  return sequence;
}

struct PlanCase {
  std::string name;
  std::vector<PlannerSequence> running;
  std::vector<PlannerSequence> waiting;
  uint32_t blocks_free = 0;
  StepPlan want;  // Rows are {index, tokens, new blocks}.
};

void PrintTo(const PlanCase& plan_case, std::ostream* out) { *out << plan_case.name; }

class StepPlannerTest : public testing::TestWithParam<PlanCase> {};

TEST_P(StepPlannerTest, Plans) {
  const PlanCase& param = GetParam();
  EXPECT_EQ(
      PlanStep(
          {.running = param.running, .waiting = param.waiting, .blocks_free = param.blocks_free},
          kLimits),
      param.want);
}

const PlanCase kDecodeCases[] = {
    {"NothingToDo", {}, {}, 9, {}},
    {"EachDecodingSequenceGetsOneRow",
     {Decoding(6), Decoding(10)},
     {},
     0,
     {.decode = {{0, 1, 0}, {1, 1, 0}}}},
    {"ARowThatBeginsABlockTakesOne", {Decoding(9)}, {}, 1, {.decode = {{0, 1, 1}}}},
    {"ItsOwnReservationComesBeforeFreeBlocks",
     {Decoding(9, 1), Decoding(5)},
     {},
     1,
     {.decode = {{0, 1, 1}, {1, 1, 1}}}},
    {"RowsStopAtTheLimitOldestFirst",
     {Decoding(6), Decoding(6), Decoding(6), Decoding(6), Decoding(6), Decoding(6), Decoding(6),
      Decoding(6), Decoding(6)},
     {},
     0,
     {.decode = {{0, 1, 0},
                 {1, 1, 0},
                 {2, 1, 0},
                 {3, 1, 0},
                 {4, 1, 0},
                 {5, 1, 0},
                 {6, 1, 0},
                 {7, 1, 0}}}},
    {"WaitingReservationsAreRevokedBeforeAnyoneIsPreempted",
     {Decoding(9), Decoding(6)},
     {Waiting(20, 2), Waiting(20, 3)},
     0,
     // The youngest loses one, not more than is needed.
     {.revoke = {{1, 1}}, .decode = {{0, 1, 1}, {1, 1, 0}}}},
    {"TheYoungestIsPreemptedForAnOlderOne",
     {Decoding(9), Decoding(6), Decoding(7)},
     {},
     0,
     {.preempt = {2}, .decode = {{0, 1, 1}, {1, 1, 0}}}},
    {"APreemptedSequenceGivesItsReservationToo",
     {Decoding(9), Decoding(9), Decoding(5, 1)},
     {},
     0,
     {.preempt = {2}, .decode = {{0, 1, 1}, {1, 1, 1}}}},
    {"TheYoungestSitsOutRatherThanRobAnOlderOne",
     {Decoding(6), Decoding(9)},
     {},
     0,
     {.decode = {{0, 1, 0}}}},
    {"ALoneSequenceKeepsItsBlocksAndWaits", {Decoding(9)}, {}, 0, {}},
    {"APinnedSequenceIsNotPreempted",
     {Decoding(9), Decoding(6), HandedOff(Begun(12, 8))},
     {},
     0,
     {.preempt = {1}, .decode = {{0, 1, 1}}, .resume = {{2, 4, 0}}}},
    {"IfOnlyPinnedOnesRemainItWaits",
     {Decoding(9), HandedOff(Begun(12, 8))},
     {},
     0,
     {.resume = {{1, 4, 0}}}},
    {"APartlyPrefilledPromptMayBePreempted",
     {Decoding(9), Begun(12, 8)},
     {},
     0,
     {.preempt = {1}, .decode = {{0, 1, 1}}}},
    {"NothingStartsInAStepThatPreempts",
     {Decoding(9), Decoding(13)},
     {Waiting(4)},
     0,
     {.preempt = {1}, .decode = {{0, 1, 1}}}},
};

const PlanCase kPrefillCases[] = {
    {"APromptGetsAllItsBlocksWhenItStarts", {}, {Waiting(40)}, 10, {.start = {{0, 16, 10}}}},
    {"PromptsArePackedInOrderOfArrival",
     {},
     {Waiting(5), Waiting(6), Waiting(40)},
     20,
     {.start = {{0, 5, 2}, {1, 6, 2}, {2, 5, 10}}}},
    {"NoMorePromptsAreTouchedThanPackedMax",
     {},
     {Waiting(2), Waiting(2), Waiting(2), Waiting(2)},
     20,
     {.start = {{0, 2, 1}, {1, 2, 1}, {2, 2, 1}}}},
    {"PartlyPrefilledPromptsGoFirst",
     {Begun(30, 16)},
     {Waiting(10)},
     20,
     {.resume = {{0, 14, 0}}, .start = {{0, 2, 3}}}},
    {"ALongPromptTakesTheWholeChunk", {Begun(40, 16)}, {Waiting(4)}, 20, {.resume = {{0, 16, 0}}}},
    {"DecodeRowsDoNotCountAgainstTheChunk",
     {Decoding(6), Begun(40, 16)},
     {},
     9,
     {.decode = {{0, 1, 0}}, .resume = {{1, 16, 0}}}},
    {"AShortHeadThatFitsStartsWithGrowthLeftForTheOthers",
     {Decoding(6)},
     {Waiting(4)},
     3,  // One to start, one each for the growth of both.
     {.decode = {{0, 1, 0}}, .start = {{0, 4, 1}}}},
    {"WithoutGrowthLeftForTheOthersItWaitsAndReserves",
     {Decoding(6)},
     {Waiting(4)},
     2,
     {.decode = {{0, 1, 0}}, .reserve = {{0, 1}}}},
    {"AReservedSequenceNeedsNoGrowthFromTheFreeBlocks",
     {Decoding(6, 2)},
     {Waiting(4)},
     1,
     {.decode = {{0, 1, 0}}, .start = {{0, 4, 1}}}},
    {"AHandOffLeavesNoGrowth",
     {},
     {HandedOff(Waiting(8)), HandedOff(Waiting(8))},
     4,
     {.start = {{0, 8, 2}, {1, 8, 2}}}},
    {"AnEmptyRunnerStartsAPromptThatFitsExactly", {}, {Waiting(16)}, 4, {.start = {{0, 16, 4}}}},
    {"TheHeadOfTheLineKeepsShorterOnesWaiting",
     {},
     {Waiting(40), Waiting(4)},
     9,
     {.reserve = {{0, 9}}}},
    {"TheHeadsReservationCountsTowardsItsStart", {}, {Waiting(40, 9)}, 1, {.start = {{0, 16, 10}}}},
    {"TheHeadUsesWhatThoseBehindItReserved",
     {},
     {Waiting(16, 1), Waiting(8, 1), Waiting(8, 2)},
     0,
     {.revoke = {{1, 1}, {2, 2}}, .start = {{0, 16, 4}}}},
    {"ReservationsBehindTheHeadStayIfTheyDoNotSuffice", {}, {Waiting(16, 1), Waiting(8, 2)}, 0, {}},
    {"NothingStartsBeyondRunningMax",
     {Decoding(6, 1), Decoding(6, 1), Decoding(6, 1), Decoding(6, 1), Decoding(6, 1),
      Decoding(6, 1), Decoding(6, 1)},
     {Waiting(2), Waiting(2)},
     20,
     {.decode = {{0, 1, 0}, {1, 1, 0}, {2, 1, 0}, {3, 1, 0}, {4, 1, 0}, {5, 1, 0}, {6, 1, 0}},
      .start = {{0, 2, 1}}}},
    {"RowsWithAllLogitsAreFewAStep",
     {WithAllLogits(Begun(20, 4))},
     {WithAllLogits(Waiting(8)), Waiting(8)},
     20,
     // The second prompt must not overtake the first.
     {.resume = {{0, 6, 0}}}},
    {"AllLogitsOfOnePromptDoNotHoldUpOthersThatRun",
     {WithAllLogits(Begun(20, 4)), WithAllLogits(Begun(20, 4)), Begun(20, 4)},
     {},
     20,
     {.resume = {{0, 6, 0}, {2, 10, 0}}}},
};

std::string CaseName(const testing::TestParamInfo<PlanCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Decode, StepPlannerTest, testing::ValuesIn(kDecodeCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Prefill, StepPlannerTest, testing::ValuesIn(kPrefillCases), CaseName);

TEST(StepPlannerLimits, DecodeRowsAndPromptsShareTheModelsRows) {
  PlannerLimits limits = kLimits;
  limits.rows_max = 9;
  const std::vector<PlannerSequence> running = {Decoding(6), Decoding(6), Begun(40, 0)};
  const StepPlan plan = PlanStep({.running = running, .blocks_free = 9}, limits);
  EXPECT_EQ(plan.decode.size(), 2u);
  EXPECT_THAT(plan.resume, testing::ElementsAre(PlannedRows{2, 7, 0}));
}

}  // namespace
}  // namespace baton::runner
