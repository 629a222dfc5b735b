// Random walks: additions, adoptions, hand-offs, cancels and other users of the pool, in pools that
// are too small. After each step blocks must add up; in the end every sequence ended exactly once,
// with the tokens it has alone. A failure prints its seed; rerun with BATON_SEED=<seed>.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "runner/runner.h"
#include "runner/step_planner.h"
#include "tests/fakes/fake_model.h"
#include "tests/runner/test_worker.h"

namespace baton::runner {
namespace {

using fakes::FakeModel;
using kvstore::KvBlockId;

constexpr uint64_t kSeeds = 40;
constexpr int kBusySteps = 300;
constexpr int kDrainStepsMax = 20000;
constexpr uint32_t kTokensMax = 60;  // Of a sequence: fits the smallest pool, or it could not end.
constexpr uint32_t kOutsideBlocksMax = 4;

uint64_t FirstSeed() {
  const char* seed = std::getenv("BATON_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

class Walk {
 public:
  explicit Walk(uint64_t seed)
      : random_(seed),
        model_({.block_tokens = 8, .batch_rows_max = 40}),
        source_(model_, model_.kv_layout(), 64, {.running_max = 8}),
        worker_(model_, model_.kv_layout(), /*blocks=*/8 + Below(12),
                {.chunk_tokens = 16 + Below(17),
                 .running_max = 1 + Below(8),
                 .prefill_packed_max = 1 + Below(4)}) {}

  ~Walk() { worker_.pool().Release(outside_); }

  // So that a test can see that the walks went where it hurts.
  uint32_t preempted() const { return worker_.preempted(); }
  uint32_t ended() const { return static_cast<uint32_t>(requests_.size() - cancelled_.size()); }
  uint32_t cancelled() const { return static_cast<uint32_t>(cancelled_.size()); }

  void Run() {
    for (int step = 0; step < kBusySteps; ++step) {
      Step(RandomInbox());
      UseThePoolOutside();
      if (testing::Test::HasFailure()) return;
    }
    worker_.pool().Release(std::exchange(outside_, {}));
    for (int step = 0; Left() > 0; ++step) {
      ASSERT_LT(step, kDrainStepsMax) << Left() << " sequences never end";
      Step({});
      if (testing::Test::HasFailure()) return;
    }
    ExpectAllEnded();
  }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  uint32_t Left() {
    const RunnerCounts counts = worker_.runner().counts();
    return counts.waiting + counts.running;
  }

  SequenceRequest RandomRequest() {
    const uint32_t prompt_tokens = 1 + Below(kTokensMax - 2);
    SequenceRequest request{.id = SequenceId{++last_id_},
                            .output_start = prompt_tokens,
                            .max_tokens = 1 + Below(kTokensMax - prompt_tokens)};
    for (uint32_t i = 0; i < prompt_tokens; ++i) request.tokens.push_back(Below(256));
    request.sampling.logprobs = 1;
    if (Below(2) == 0) request.sampling.temperature = 1.2f;
    if (Below(8) == 0) request.prompt_logprobs = 1;
    request.sampling.seed = random_();
    return request;
  }

  StepInbox RandomInbox() {
    StepInbox inbox;
    if (Left() < 12 && Below(3) == 0) AddOne(inbox);
    if (Left() < 12 && Below(6) == 0) AdoptOne(inbox);
    if (Below(12) == 0 && last_id_ > 0) {
      const SequenceId id{1 + Below(static_cast<uint32_t>(last_id_))};
      if (live_.contains(id)) cancelled_.insert(id);
      inbox.cancel.push_back(id);
    }
    return inbox;
  }

  void AddOne(StepInbox& inbox) {
    SequenceRequest request = RandomRequest();
    request.hand_off = Below(4) == 0;
    uint32_t reserved = Below(3);
    if (!worker_.pool().Reserve(reserved).ok()) reserved = 0;
    Track(request);
    inbox.add.push_back(std::move(request));
    inbox.add_reserved_blocks.push_back(reserved);
  }

  // A sequence whose prompt was computed elsewhere, if the pool has room for it.
  void AdoptOne(StepInbox& inbox) {
    SequenceRequest request = RandomRequest();
    if (request.max_tokens == 1) return;
    request.prompt_logprobs.reset();
    const uint32_t blocks = BlocksFor(request.output_start, 8);
    const uint32_t reserved = Below(2);
    if (!worker_.pool().Reserve(blocks + reserved).ok()) return;
    SequenceRequest handed = request;
    handed.hand_off = true;
    Answers first;
    std::vector<KvBlockId> source_blocks;
    for (StepInbox source_inbox{.add = {handed}}; source_blocks.empty();) {
      const StepOutbox outbox = source_.Step(std::exchange(source_inbox, {}));
      TakeOutbox(outbox, first);
      for (const HandedOver& over : outbox.handed_over) source_blocks = over.blocks;
    }
    source_.pool().Release(source_blocks);

    AdoptedSequence adopted{.request = request, .reserved_blocks = reserved};
    adopted.blocks.resize(blocks);
    worker_.pool().AllocateReserved(absl::MakeSpan(adopted.blocks));
    source_.observer().Paste(request.id, adopted.blocks, worker_.kv());
    adopted.request.tokens.push_back(first[request.id].tokens[0]);
    answers_.merge(first);
    Track(request);
    inbox.adopt.push_back(std::move(adopted));
  }

  void Track(const SequenceRequest& request) {
    requests_.emplace(request.id, request);
    live_.insert(request.id);
  }

  // Someone else takes and gives back blocks of the same pool, as hand-offs do.
  void UseThePoolOutside() {
    if (Below(3) == 0 && outside_.size() < kOutsideBlocksMax) {
      KvBlockId block;
      if (worker_.pool().Allocate(absl::MakeSpan(&block, 1)).ok()) outside_.push_back(block);
    } else if (Below(3) == 0 && !outside_.empty()) {
      worker_.pool().Release(outside_.back());
      outside_.pop_back();
    }
  }

  void Step(StepInbox inbox) {
    const StepOutbox outbox = worker_.Step(std::move(inbox));
    TakeOutbox(outbox, answers_);
    for (const TokenOutput& output : outbox.tokens) {
      EXPECT_TRUE(live_.contains(output.id));
      if (output.finish != FinishReason::kNone && !requests_.at(output.id).hand_off) End(output.id);
    }
    for (const SequenceFailure& failure : outbox.failures) End(failure.id);
    for (const HandedOver& over : outbox.handed_over) {
      EXPECT_EQ(over.cancelled, cancelled_.contains(over.id));
      worker_.pool().Release(over.blocks);
      End(over.id);
    }
    for (SequenceId id : cancelled_) live_.erase(id);
    EXPECT_EQ(live_.size(), Left());
    EXPECT_LE(outbox.prefill_tokens + outbox.decode_rows, model_.batch_rows_max());
    const kvstore::KvPoolCounts counts = worker_.pool().counts();
    EXPECT_EQ(counts.free + counts.held, counts.total);
    EXPECT_LE(counts.reserved, counts.free);
  }

  void End(SequenceId id) { EXPECT_EQ(live_.erase(id), 1u) << "ended twice"; }

  void ExpectAllEnded() {
    EXPECT_TRUE(live_.empty());
    const kvstore::KvPoolCounts counts = worker_.pool().counts();
    EXPECT_EQ(counts.free, counts.total);
    EXPECT_EQ(counts.reserved, 0u);
    for (const auto& [id, request] : requests_) {
      if (cancelled_.contains(id)) continue;
      SequenceRequest alone = request;
      alone.hand_off = false;
      Answer want = source_.Run({alone}).at(id);
      if (request.hand_off && want.tokens.size() > 1) {
        want.tokens.resize(1);
        want.logprobs.resize(1);
        want.finish = FinishReason::kNone;
        want.ends = 0;
      }
      EXPECT_EQ(answers_[id], want) << "sequence " << static_cast<uint64_t>(id);
    }
  }

  std::mt19937_64 random_;
  FakeModel model_;
  TestWorker source_;  // Roomy: computes what is adopted, and each sequence alone.
  TestWorker worker_;
  std::map<SequenceId, SequenceRequest> requests_;
  std::set<SequenceId> live_;
  std::set<SequenceId> cancelled_;
  Answers answers_;
  std::vector<KvBlockId> outside_;
  uint64_t last_id_ = 0;
};

TEST(RunnerSimulation, EverySequenceEndsOnceWithItsOwnTokens) {
  uint32_t preempted = 0;
  uint32_t ended = 0;
  uint32_t cancelled = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "BATON_SEED=" << seed);
    Walk walk(seed);
    walk.Run();
    if (testing::Test::HasFailure()) return;
    preempted += walk.preempted();
    ended += walk.ended();
    cancelled += walk.cancelled();
  }
  EXPECT_GT(preempted, kSeeds);
  EXPECT_GT(ended, 10 * kSeeds);
  EXPECT_GT(cancelled, kSeeds);
  RecordProperty("preempted", static_cast<int>(preempted));
}

}  // namespace
}  // namespace baton::runner
