// The runner on a model whose every token depends on all KV before it (tests/fakes/fake_model.h).
#include "runner/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/fake_model.h"
#include "tests/runner/test_worker.h"

namespace baton::runner {
namespace {

using fakes::FakeModel;
using fakes::FakeModelOptions;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::Time kStart = absl::UnixEpoch();

// A prompt that no other number gives.
std::vector<uint32_t> Prompt(uint32_t number, uint32_t tokens) {
  std::vector<uint32_t> prompt(tokens);
  for (uint32_t i = 0; i < tokens; ++i) prompt[i] = (number * 37 + i * i * 5 + i) % 256;
  return prompt;
}

SequenceRequest Request(uint32_t number, uint32_t prompt_tokens, uint32_t max_tokens) {
  SequenceRequest request{.id = SequenceId{number},
                          .tokens = Prompt(number, prompt_tokens),
                          .output_start = prompt_tokens,
                          .max_tokens = max_tokens};
  request.sampling.logprobs = 3;
  // Some greedy, some drawn.
  if (number % 2 == 1) {
    request.sampling.temperature = 1.5f;
    request.sampling.frequency_penalty = 0.5f;
    request.sampling.seed = number;
  }
  return request;
}

std::vector<SequenceRequest> MixedRequests(uint32_t count) {
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < count; ++i) {
    requests.push_back(Request(i + 1, 1 + i * 29 % 70, 1 + i * 13 % 40));
  }
  return requests;
}

std::unique_ptr<TestWorker> MakeWorker(FakeModel& model, uint32_t blocks,
                                       const RunnerConfig& config = {}) {
  return std::make_unique<TestWorker>(model, model.kv_layout(), blocks, config);
}

// Each request by itself, in a worker that holds nothing else.
Answers Alone(const std::vector<SequenceRequest>& requests) {
  FakeModel model({});
  Answers answers;
  for (const SequenceRequest& request : requests) {
    answers.merge(MakeWorker(model, 64)->Run({request}));
  }
  return answers;
}

void ExpectNothingHeld(TestWorker& worker) {
  const kvstore::KvPoolCounts counts = worker.pool().counts();
  EXPECT_EQ(counts.free, counts.total);
  EXPECT_EQ(counts.reserved, 0u);
  EXPECT_EQ(worker.runner().counts().running + worker.runner().counts().waiting, 0u);
}

// Equality: whatever else runs, however it is cut, a sequence gives the same tokens and
// log-probabilities.

struct EqualityCase {
  std::string name;
  FakeModelOptions model;
  RunnerConfig config;
  uint32_t blocks = 256;
  bool expect_preemptions = false;
};
void PrintTo(const EqualityCase& equality_case, std::ostream* out) { *out << equality_case.name; }

class RunnerEqualityTest : public testing::TestWithParam<EqualityCase> {};

TEST_P(RunnerEqualityTest, AMixtureGivesWhatEachGivesAlone) {
  const std::vector<SequenceRequest> requests = MixedRequests(32);
  FakeModel model(GetParam().model);
  const auto worker = MakeWorker(model, GetParam().blocks, GetParam().config);
  EXPECT_EQ(worker->Run(requests), Alone(requests));
  EXPECT_EQ(worker->preempted() > 0, GetParam().expect_preemptions);
  ExpectNothingHeld(*worker);
}

const EqualityCase kEqualityCases[] = {
    {"Defaults"},
    {.name = "Chunk16", .config = {.chunk_tokens = 16}},
    {.name = "Block8", .model = {.block_tokens = 8}, .blocks = 512},
    {.name = "Block32Chunk16", .model = {.block_tokens = 32}, .config = {.chunk_tokens = 16}},
    {.name = "OneAtATime", .config = {.running_max = 1}},
    {.name = "FewRowsAStep",
     .model = {.batch_rows_max = 24},
     .config = {.chunk_tokens = 16, .running_max = 20, .prefill_packed_max = 2}},
    {.name = "Preempted", .blocks = 12, .expect_preemptions = true},
    {.name = "PreemptedBlock8Chunk16",
     .model = {.block_tokens = 8},
     .config = {.chunk_tokens = 16},
     .blocks = 20,
     .expect_preemptions = true},
};
INSTANTIATE_TEST_SUITE_P(Cases, RunnerEqualityTest, testing::ValuesIn(kEqualityCases),
                         [](const auto& info) { return info.param.name; });

TEST(Runner, AHandedOverSequenceGivesWhatItGivesAlone) {
  const std::vector<SequenceRequest> requests = MixedRequests(32);
  FakeModel prefill_model({});
  FakeModel decode_model({});
  for (uint32_t chunk_tokens : {16, 512}) {
    const auto prefill = MakeWorker(prefill_model, 128, {.chunk_tokens = chunk_tokens});
    const auto decode = MakeWorker(decode_model, 256);
    EXPECT_EQ(prefill->RunHandedOver(requests, *decode), Alone(requests));
    ExpectNothingHeld(*prefill);
    ExpectNothingHeld(*decode);
  }
}

TEST(Runner, AdoptedSequencesMayBePreempted) {
  const std::vector<SequenceRequest> requests = MixedRequests(12);
  FakeModel prefill_model({});
  FakeModel decode_model({});
  const auto prefill = MakeWorker(prefill_model, 128, {.chunk_tokens = 16});
  const auto decode = MakeWorker(decode_model, 26);
  EXPECT_EQ(prefill->RunHandedOver(requests, *decode), Alone(requests));
  EXPECT_GT(decode->preempted(), 0u);
  ExpectNothingHeld(*decode);
}

TEST(Runner, AContinuedSequenceGivesTheRestOfTheAnswer) {
  SequenceRequest request = Request(7, 33, 20);
  const Answer whole = Alone({request}).at(request.id);
  request.tokens.insert(request.tokens.end(), whole.tokens.begin(), whole.tokens.begin() + 8);
  const Answer rest = Alone({request}).at(request.id);
  EXPECT_THAT(rest.tokens, testing::ElementsAreArray(whole.tokens.begin() + 8, whole.tokens.end()));
  EXPECT_EQ(rest.logprobs.front(), whole.logprobs[8]);
}

#ifdef BATON_PLANTED_FAULTS
class RunnerPlantedFaultTest : public testing::TestWithParam<PlantedFault> {};

TEST_P(RunnerPlantedFaultTest, IsSeen) {
  const std::vector<SequenceRequest> requests = {Request(1, 40, 10), Request(2, 40, 10)};
  FakeModel model({});
  const Answers got = MakeWorker(model, 64, {.planted_fault = GetParam()})->Run(requests);
  for (const auto& [id, answer] : Alone(requests)) EXPECT_NE(got.at(id), answer);
}

INSTANTIATE_TEST_SUITE_P(Faults, RunnerPlantedFaultTest,
                         testing::Values(PlantedFault::kStaleBlock, PlantedFault::kWrongPosition));
#endif

// Prompt log-probabilities.

TEST(Runner, PromptLogprobsDoNotDependOnChunksOrPreemption) {
  std::vector<SequenceRequest> requests = MixedRequests(12);
  for (SequenceRequest& request : requests) request.prompt_logprobs = 2;
  const Answers alone = Alone(requests);
  for (const SequenceRequest& request : requests) {
    EXPECT_THAT(alone.at(request.id).prompt_logprobs, SizeIs(request.output_start));
  }
  FakeModel model({});
  EXPECT_EQ(MakeWorker(model, 64)->Run(requests), alone);
  EXPECT_EQ(MakeWorker(model, 12, {.chunk_tokens = 16})->Run(requests), alone);
}

TEST(Runner, PromptLogprobsAreThoseOfTheSameTokensAsOutput) {
  SequenceRequest request = Request(2, 20, 100);
  request.sampling.logprobs = 2;
  const Answer written = Alone({request}).at(request.id);

  // More rows than one step gives logits of.
  request.tokens.insert(request.tokens.end(), written.tokens.begin(), written.tokens.end());
  request.output_start = static_cast<uint32_t>(request.tokens.size());
  request.max_tokens = 1;
  request.prompt_logprobs = 2;
  const Answer read = Alone({request}).at(request.id);
  ASSERT_THAT(read.prompt_logprobs, SizeIs(120));
  EXPECT_EQ(read.prompt_logprobs[0], model::PositionLogprobs{});
  for (size_t i = 0; i < written.tokens.size(); ++i) {
    EXPECT_EQ(read.prompt_logprobs[20 + i], written.logprobs[i]) << "at output " << i;
  }
}

// Ends.

TEST(Runner, MaxTokensEndsWithLength) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8);
  const Answer answer = worker->Run({Request(1, 5, 3)}).at(SequenceId{1});
  EXPECT_THAT(answer.tokens, SizeIs(3));
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST(Runner, AStopTokenEndsTheOutputAndIsReported) {
  FakeModel model({.script = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19}});
  SequenceRequest request = Request(2, 5, 8);
  request.stop_token_ids = {200, 17};
  const Answer answer = MakeWorker(model, 8)->Run({request}).at(request.id);
  EXPECT_THAT(answer.tokens, ElementsAre(15, 16, 17));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
}

TEST(Runner, AStopTokenAtTheLastPositionIsAStop) {
  FakeModel model({.forced = {{5, 99}}});
  SequenceRequest request = Request(2, 5, 1);
  request.stop_token_ids = {99};
  EXPECT_EQ(MakeWorker(model, 8)->Run({request}).at(request.id).finish, FinishReason::kStop);
}

TEST(Runner, PositionsCountTheOutput) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8);
  SequenceRequest request = Request(2, 5, 4);
  request.tokens.push_back(77);  // Put out elsewhere, at position 0.
  std::vector<uint32_t> positions;
  StepInbox inbox{.add = {request}};
  for (int step = 0; step < 3; ++step) {
    for (const TokenOutput& output : worker->Step(std::exchange(inbox, {})).tokens) {
      positions.push_back(output.position);
    }
  }
  EXPECT_THAT(positions, ElementsAre(1, 2, 3));
  ExpectNothingHeld(*worker);
}

TEST(Runner, TheFirstTokenTellsWhenItsFirstChunkStarted) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8, {.chunk_tokens = 16});
  StepInbox inbox{.add = {Request(2, 40, 3)}};
  std::vector<std::optional<absl::Time>> started;
  for (int step = 0; step < 5; ++step) {
    const absl::Time now = kStart + absl::Seconds(step + 1);
    for (const TokenOutput& output : worker->runner().Step(now, std::exchange(inbox, {})).tokens) {
      started.push_back(output.first_chunk_started);
    }
  }
  EXPECT_THAT(started, ElementsAre(kStart + absl::Seconds(1), std::nullopt, std::nullopt));
}

TEST(Runner, ASequenceThatCanNeverFitFailsAtOnceWithNumbers) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 2);
  const StepOutbox outbox = worker->Step({.add = {Request(1, 33, 1)}});
  EXPECT_TRUE(outbox.idle);
  ASSERT_THAT(outbox.failures, SizeIs(1));
  EXPECT_EQ(outbox.failures[0].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(outbox.failures[0].status.message()),
              testing::AllOf(HasSubstr("33 tokens"), HasSubstr("3 KV blocks"), HasSubstr("has 2")));
  ExpectNothingHeld(*worker);
}

TEST(Runner, ASequenceThatOutgrowsThePoolFailsAndOthersGoOn) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 2);
  const std::vector<SequenceRequest> requests = {Request(1, 20, 200), Request(2, 5, 10)};
  const Answers answers = worker->Run(requests);
  EXPECT_EQ(answers.at(SequenceId{1}).failure.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(answers.at(SequenceId{1}).tokens, SizeIs(13));  // 33 tokens no longer fit.
  EXPECT_EQ(answers.at(SequenceId{2}), Alone({requests[1]}).at(SequenceId{2}));
  ExpectNothingHeld(*worker);
}

TEST(Runner, FinishedSequencesGiveTheirBlocksBeforeOthersGrow) {
  FakeModel model({});
  for (const bool younger_ends : {true, false}) {
    const auto worker = MakeWorker(model, 2);
    StepInbox inbox;
    for (uint32_t number : {1, 2}) {
      AdoptedSequence adopted{.request = Request(number, 15, number == 2 && younger_ends ? 2 : 8)};
      adopted.request.tokens.push_back(9);
      adopted.blocks.resize(1);
      ASSERT_TRUE(worker->pool().Allocate(absl::MakeSpan(adopted.blocks)).ok());
      inbox.adopt.push_back(std::move(adopted));
    }
    EXPECT_THAT(worker->Step(std::move(inbox)).tokens, SizeIs(2));
    // The older one needs its second block now.
    EXPECT_THAT(worker->Step().tokens, SizeIs(1));
    EXPECT_EQ(worker->preempted(), younger_ends ? 0u : 1u);
  }
}

TEST(Runner, TheYoungestIsPreempted) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 6);
  const std::vector<SequenceRequest> requests = {Request(1, 30, 40), Request(2, 30, 20)};
  StepInbox inbox{.add = requests};
  Answers answers;
  std::vector<SequenceId> ended;
  while (ended.size() < 2) {
    const StepOutbox outbox = worker->Step(std::exchange(inbox, {}));
    ASSERT_FALSE(outbox.idle);
    TakeOutbox(outbox, answers);
    for (const TokenOutput& output : outbox.tokens) {
      if (output.finish != FinishReason::kNone) ended.push_back(output.id);
    }
  }
  EXPECT_EQ(worker->preempted(), 1u);
  EXPECT_THAT(ended, ElementsAre(SequenceId{1}, SequenceId{2}));
  EXPECT_EQ(answers, Alone(requests));
}

// Cancels.

struct CancelCase {
  std::string name;
  bool hand_off;
  int steps_before;  // 0: with the addition itself; the prompt takes three.
  uint32_t blocks_handed_over;
};
void PrintTo(const CancelCase& cancel_case, std::ostream* out) { *out << cancel_case.name; }

class RunnerCancelTest : public testing::TestWithParam<CancelCase> {};

TEST_P(RunnerCancelTest, FreesEverything) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8, {.chunk_tokens = 16});
  SequenceRequest request = Request(1, 40, 9);
  request.hand_off = GetParam().hand_off;
  StepInbox inbox{.add = {std::move(request)}};
  for (int step = 0; step < GetParam().steps_before; ++step) {
    worker->Step(std::exchange(inbox, {}));
  }
  inbox.cancel = {SequenceId{1}};
  const StepOutbox outbox = worker->Step(std::move(inbox));
  EXPECT_THAT(outbox.tokens, IsEmpty());
  EXPECT_TRUE(outbox.idle);
  ASSERT_THAT(outbox.handed_over, SizeIs(GetParam().hand_off ? 1 : 0));
  for (const HandedOver& handed : outbox.handed_over) {
    EXPECT_TRUE(handed.cancelled);
    EXPECT_THAT(handed.blocks, SizeIs(GetParam().blocks_handed_over));
    worker->pool().Release(handed.blocks);
  }
  ExpectNothingHeld(*worker);
}

const CancelCase kCancelCases[] = {
    {"WithItsAddition", false, 0, 0},       {"WhilePrefilling", false, 1, 0},
    {"WhileDecoding", false, 5, 0},         {"HandOffWithItsAddition", true, 0, 0},
    {"HandOffWhilePrefilling", true, 2, 3},
};
INSTANTIATE_TEST_SUITE_P(Cases, RunnerCancelTest, testing::ValuesIn(kCancelCases),
                         [](const auto& info) { return info.param.name; });

TEST(Runner, AWaitingSequenceMayBeCancelled) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8, {.running_max = 1});
  ASSERT_TRUE(worker->pool().Reserve(2).ok());
  worker->Step({.add = {Request(1, 5, 9), Request(2, 5, 9)}, .add_reserved_blocks = {0, 2}});
  EXPECT_EQ(worker->runner().counts().waiting, 1u);
  EXPECT_EQ(worker->pool().counts().reserved, 2u);
  worker->Step({.cancel = {SequenceId{2}}});
  EXPECT_EQ(worker->runner().counts().waiting, 0u);
  EXPECT_EQ(worker->pool().counts().reserved, 0u);
}

TEST(Runner, AnAdoptedSequenceMayBeCancelledWithItsAdoption) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8);
  ASSERT_TRUE(worker->pool().Reserve(3).ok());
  AdoptedSequence adopted{.request = Request(1, 17, 40), .reserved_blocks = 1};
  adopted.request.tokens.push_back(9);
  adopted.blocks.resize(2);
  worker->pool().AllocateReserved(absl::MakeSpan(adopted.blocks));
  StepInbox inbox{.cancel = {SequenceId{1}}};
  inbox.adopt.push_back(std::move(adopted));
  EXPECT_TRUE(worker->Step(std::move(inbox)).idle);
  ExpectNothingHeld(*worker);
}

TEST(Runner, UnknownCancelsAreIgnored) {
  FakeModel model({});
  EXPECT_TRUE(MakeWorker(model, 8)->Step({.cancel = {SequenceId{5}}}).idle);
}

// Hand-off.

TEST(Runner, AHandedOverSequenceStopsAtItsFirstTokenAndItsBlocksAreTheCallers) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8, {.chunk_tokens = 16});
  SequenceRequest request = Request(1, 20, 9);
  request.hand_off = true;
  EXPECT_THAT(worker->Step({.add = {request}}).tokens, IsEmpty());
  const StepOutbox outbox = worker->Step();
  ASSERT_THAT(outbox.tokens, SizeIs(1));
  EXPECT_EQ(outbox.tokens[0].finish, FinishReason::kNone);
  ASSERT_THAT(outbox.handed_over, SizeIs(1));
  EXPECT_FALSE(outbox.handed_over[0].cancelled);
  EXPECT_EQ(worker->runner().counts().running, 0u);
  EXPECT_EQ(worker->pool().counts().held, 2u);
  worker->pool().Release(outbox.handed_over[0].blocks);
  ExpectNothingHeld(*worker);
}

// Shared pool.

TEST(Runner, WaitsForBlocksThatOthersHold) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 4);
  std::vector<kvstore::KvBlockId> others(3);
  ASSERT_TRUE(worker->pool().Allocate(absl::MakeSpan(others)).ok());
  const StepOutbox blocked = worker->Step({.add = {Request(2, 20, 2)}});
  EXPECT_TRUE(blocked.idle);
  EXPECT_EQ(worker->runner().counts().waiting, 1u);
  EXPECT_EQ(worker->pool().counts().reserved, 1u) << "the head of the line reserves what is free";
  worker->pool().Release(others);
  EXPECT_THAT(worker->Step().tokens, SizeIs(1));
}

TEST(Runner, ReservedBlocksAreUsedFirst) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 4);
  ASSERT_TRUE(worker->pool().Reserve(3).ok());
  worker->Step({.add = {Request(2, 20, 40)}, .add_reserved_blocks = {3}});
  EXPECT_EQ(worker->pool().counts().held, 2u);
  EXPECT_EQ(worker->pool().counts().reserved, 1u);
  for (int step = 0; step < 13; ++step) worker->Step();
  EXPECT_EQ(worker->pool().counts().held, 3u);
  EXPECT_EQ(worker->pool().counts().reserved, 0u);
}

TEST(Runner, AnotherThreadMayTakeBlocksBetweenPlanAndAllocation) {
  const std::vector<SequenceRequest> requests = MixedRequests(16);
  FakeModel model({});
  const auto worker = MakeWorker(model, 16);
  std::atomic<bool> done = false;
  std::thread other([&] {
    std::array<kvstore::KvBlockId, 3> blocks;
    while (!done) {
      if (!worker->pool().Reserve(2).ok()) continue;
      if (worker->pool().Allocate(absl::MakeSpan(blocks)).ok()) worker->pool().Release(blocks);
      worker->pool().Unreserve(2);
    }
  });
  Answers answers;
  StepInbox inbox{.add = requests};
  do {
    TakeOutbox(worker->Step(std::exchange(inbox, {})), answers);
  } while (worker->runner().counts().running + worker->runner().counts().waiting > 0);
  done = true;
  other.join();
  EXPECT_EQ(answers, Alone(requests));
  ExpectNothingHeld(*worker);
}

TEST(RunnerDeathTest, AnIdIsUsedOnce) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8);
  EXPECT_DEATH(worker->Step({.add = {Request(3, 5, 9), Request(3, 5, 9)}}), "id 3 used twice");
}

TEST(Runner, GivesEverythingBackWhenItEnds) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 8, {.running_max = 2});
  ASSERT_TRUE(worker->pool().Reserve(2).ok());
  worker->Step({.add = {Request(1, 5, 9), Request(2, 60, 9), Request(3, 9, 9)},
                .add_reserved_blocks = {0, 0, 2}});
  EXPECT_EQ(worker->runner().counts().running, 2u);
  // ~KvBlockPool CHECKs that nothing is held.
}

TEST(Runner, CountsSequencesAndPromptTokens) {
  FakeModel model({});
  const auto worker = MakeWorker(model, 64, {.chunk_tokens = 16, .running_max = 2});
  const StepOutbox outbox =
      worker->Step({.add = {Request(1, 5, 9), Request(2, 30, 9), Request(3, 7, 9)}});
  EXPECT_EQ(outbox.prefill_tokens, 16u);
  EXPECT_EQ(outbox.decode_rows, 0u);
  const RunnerCounts counts = worker->runner().counts();
  EXPECT_EQ(counts.running, 2u);
  EXPECT_EQ(counts.waiting, 1u);
  EXPECT_EQ(counts.queued_tokens, 30u - 11 + 7);
  EXPECT_EQ(worker->Step().decode_rows, 1u);
}

TEST(RunnerConfigTest, NamesTheFieldThatIsOutOfRange) {
  EXPECT_TRUE(Validate(RunnerConfig{}).ok());
  EXPECT_THAT(std::string(Validate({.chunk_tokens = 8}).message()),
              HasSubstr("chunk_tokens is 8, legal: [16, 8192]"));
  EXPECT_THAT(std::string(Validate({.running_max = 0}).message()), HasSubstr("running_max is 0"));
  EXPECT_THAT(std::string(Validate({.prefill_packed_max = 257}).message()),
              HasSubstr("prefill_packed_max is 257"));
}

}  // namespace
}  // namespace baton::runner
