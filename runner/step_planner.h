// What one step computes: a pure function from a snapshot of the sequences and the free blocks to a
// plan.
//
// Rules, in order:
//   1. Each decoding sequence gets one row, oldest first, up to running_max rows. Where its next
//   token needs a block and
//      none is free, it takes what waiting sequences have reserved, then the blocks of the youngest
//      running sequence, which is preempted. Older and pinned ones are never robbed; if only such
//      remain, it keeps what it has and sits the step out.
//   2. Partly prefilled prompts go on, oldest first. They hold all their blocks since they started,
//   so they never wait.
//   3. Waiting prompts start in order of arrival. One starts only if all its blocks can be had and
//   one block of growth is
//      left for each sequence that grows; the head of the line keeps those behind it waiting (a
//      long prompt is not starved by short ones), may use what they have reserved, and reserves
//      what is free towards its own start.
//
// So there is no deadlock: the oldest running sequence can always go on, or waits for blocks that
// are held outside the runner; and if none runs, the head of the line can start.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace baton::runner {

// What the planner sees of a sequence.
struct PlannerSequence {
  uint32_t tokens = 0;    // So far: KV is wanted of all of them. >= 1
  uint32_t computed = 0;  // Of which KV is there. < tokens; a decoding sequence lacks just one.
  uint32_t blocks = 0;    // Held; those of a partly prefilled one cover `tokens`.
  uint32_t reserved = 0;  // Blocks promised to it alone.
  bool decoding = false;
  bool grows = true;        // Goes on here after the token drawn next.
  bool pinned = false;      // Its blocks are being handed off: never preempted.
  bool all_logits = false;  // Its rows count against logit_rows_max.
};

struct PlannerLimits {
  uint32_t block_tokens = 16;
  uint32_t chunk_tokens = 512;  // Prompt tokens of one step.
  uint32_t rows_max = 1024;     // Of the whole batch; > running_max.
  uint32_t running_max = 64;
  uint32_t prefill_packed_max = 16;
  uint32_t logit_rows_max = 64;  // Rows of all_logits sequences in one step.
};

struct PlannerSnapshot {
  absl::Span<const PlannerSequence> running;  // Hold blocks; oldest first.
  absl::Span<const PlannerSequence> waiting;  // Hold none; oldest first.
  uint32_t blocks_free = 0;                   // Neither held nor reserved.
};

struct PlannedRows {
  uint32_t index = 0;       // Into running or waiting.
  uint32_t tokens = 0;      // From `computed` on.
  uint32_t new_blocks = 0;  // To be appended to its table, out of its reservation first.
  bool operator==(const PlannedRows&) const = default;
};

struct PlannedReservation {
  uint32_t index = 0;  // Into waiting.
  uint32_t blocks = 0;
  bool operator==(const PlannedReservation&) const = default;
};

// To be carried out in this order.
struct StepPlan {
  std::vector<PlannedReservation> revoke;  // Given back to the pool.
  std::vector<uint32_t> preempt;  // Of running, youngest first: give back blocks and reservations.
  std::vector<PlannedRows> decode;            // Of running.
  std::vector<PlannedRows> resume;            // Of running.
  std::vector<PlannedRows> start;             // Of waiting.
  std::optional<PlannedReservation> reserve;  // Added to the head of the line.
  bool operator==(const StepPlan&) const = default;
};

StepPlan PlanStep(const PlannerSnapshot& snapshot, const PlannerLimits& limits);

// Blocks that hold so many tokens.
inline uint32_t BlocksFor(uint32_t tokens, uint32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

}  // namespace baton::runner
