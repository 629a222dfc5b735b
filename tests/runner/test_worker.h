// A worker without services for tests of the runner: arena, pool and runner over any model, and
// what it answered.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/kv_layout.h"
#include "kvstore/kv_arena.h"
#include "kvstore/kv_block_pool.h"
#include "model/model.h"
#include "runner/runner.h"

namespace baton::runner {

// Everything one sequence put out. Comparison is exact: tokens, and log-probabilities to the bit.
struct Answer {
  std::vector<uint32_t> tokens;
  std::vector<std::optional<model::PositionLogprobs>> logprobs;  // Per token.
  std::vector<model::PositionLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  absl::Status failure;
  uint32_t ends = 0;  // Must be 1 for a sequence that was not cancelled.

  bool operator==(const Answer&) const = default;
};

using Answers = std::map<SequenceId, Answer>;

// For the messages of failed comparisons.
std::ostream& operator<<(std::ostream& out, const Answer& answer);

// Adds what a step put out; positions must follow each other.
void TakeOutbox(const StepOutbox& outbox, Answers& answers);

// Copies each block of a hand-off at the moment it is told, so that a block told too early is
// copied too early; CHECKs that each (layer, block) is told once, in order of blocks.
class CopyingObserver final : public StepObserver {
 public:
  explicit CopyingObserver(const kernels::PagedKvView& kv) : kv_(kv) {}

  void OnBlocksWritten(SequenceId id, uint32_t layer, uint32_t first_block,
                       absl::Span<const kvstore::KvBlockId> blocks) override;

  // Writes the sequence's copied blocks over `blocks` of another arena of the same layout.
  void Paste(SequenceId id, absl::Span<const kvstore::KvBlockId> blocks,
             const kernels::PagedKvView& into) const;

 private:
  const kernels::PagedKvView kv_;
  std::map<SequenceId, std::vector<std::vector<std::string>>> copies_;  // [layer][block] bytes
};

class TestWorker {
 public:
  // `model` outlives it.
  TestWorker(model::Model& model, const kernels::KvLayout& layout, uint32_t blocks,
             const RunnerConfig& config);

  StepOutbox Step(StepInbox inbox = {});
  // Steps until every sequence ended. Fails the test when nothing moves.
  Answers Run(std::vector<SequenceRequest> requests);
  // Prefills here, one hand-off after another as they end, and decodes on `decode`.
  Answers RunHandedOver(std::vector<SequenceRequest> requests, TestWorker& decode);

  Runner& runner() { return *runner_; }
  kvstore::KvBlockPool& pool() { return pool_; }
  const kernels::PagedKvView& kv() const { return arena_->view(); }
  CopyingObserver& observer() { return observer_; }
  uint32_t preempted() const { return preempted_; }

 private:
  // Copies the handed-over KV of `request` to `decode`; false when that has too few free blocks.
  bool Adopt(const SequenceRequest& request, TestWorker& decode, StepInbox& inbox);
  // Steps until its own sequences ended.
  void Drain(Answers& answers);

  std::unique_ptr<kvstore::KvArena> arena_;
  kvstore::KvBlockPool pool_;
  CopyingObserver observer_;
  std::unique_ptr<Runner> runner_;
  uint32_t preempted_ = 0;
};

}  // namespace baton::runner
