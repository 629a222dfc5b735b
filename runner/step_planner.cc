#include "runner/step_planner.h"

#include <algorithm>

#include "base/check.h"

namespace baton::runner {
namespace {

// One plan in the making. Counts what is left as the plan grows.
class Planner {
 public:
  Planner(const PlannerSnapshot& snapshot, const PlannerLimits& limits)
      : running_(snapshot.running),
        waiting_(snapshot.waiting),
        limits_(limits),
        preempted_(running_.size(), false),
        blocks_free_(snapshot.blocks_free),
        logit_rows_left_(limits.logit_rows_max),
        packed_left_(limits.prefill_packed_max) {
    CHECK_LT(limits.running_max, limits.rows_max);
    reserved_.reserve(waiting_.size());
    for (const PlannerSequence& sequence : waiting_) reserved_.push_back(sequence.reserved);
  }

  StepPlan Plan() {
    PlanDecode();
    const uint32_t rows_left = limits_.rows_max - static_cast<uint32_t>(plan_.decode.size());
    prefill_left_ = std::min(limits_.chunk_tokens, rows_left);
    PlanResume();
    // What was preempted is older than all that waits, and comes first in the next step.
    if (plan_.preempt.empty()) PlanStart();
    ListRevoked();
    return std::move(plan_);
  }

 private:
  void PlanDecode() {
    for (uint32_t index = 0; index < running_.size(); ++index) {
      if (plan_.decode.size() == limits_.running_max) return;
      const PlannerSequence& sequence = running_[index];
      if (!sequence.decoding || preempted_[index]) continue;
      const uint32_t new_blocks = MissingBlocks(sequence);
      const uint32_t from_free = new_blocks - std::min(new_blocks, sequence.reserved);
      if (!FreeForGrowth(index, from_free)) continue;
      blocks_free_ -= from_free;
      plan_.decode.push_back({.index = index, .tokens = 1, .new_blocks = new_blocks});
    }
  }

  void PlanResume() {
    for (uint32_t index = 0; index < running_.size(); ++index) {
      const PlannerSequence& sequence = running_[index];
      if (sequence.decoding || preempted_[index]) continue;
      if (const uint32_t tokens = TakeChunk(sequence); tokens > 0) {
        plan_.resume.push_back({.index = index, .tokens = tokens});
      }
    }
  }

  void PlanStart() {
    uint32_t sequences = static_cast<uint32_t>(running_.size());
    // Those that will want free blocks beyond what they have and were promised.
    uint32_t growing = 0;
    for (const PlannerSequence& sequence : running_) {
      growing += sequence.grows && sequence.reserved == 0;
    }

    for (uint32_t index = 0; index < waiting_.size(); ++index) {
      if (sequences >= limits_.running_max || ChunkFor(waiting_[index]) == 0) return;
      const uint32_t blocks = MissingBlocks(waiting_[index]);
      const uint32_t from_free = blocks - std::min(blocks, reserved_[index]);
      const bool grows = waiting_[index].grows && reserved_[index] <= blocks;
      const uint32_t headroom = growing > 0 ? growing + grows : 0;
      if (!FreeForStart(index, from_free + headroom)) {
        // Alone it needs no headroom, so what it reserves suffices in the end.
        if (const uint32_t part = std::min(from_free, blocks_free_); part > 0) {
          plan_.reserve = {.index = index, .blocks = part};
        }
        return;
      }
      blocks_free_ -= from_free;
      plan_.start.push_back(
          {.index = index, .tokens = TakeChunk(waiting_[index]), .new_blocks = blocks});
      growing += grows;
      ++sequences;
    }
  }

  // Makes `blocks` free for a running sequence: what the waiting have reserved, then what the
  // younger running hold.
  bool FreeForGrowth(uint32_t index, uint32_t blocks) {
    Revoke(/*from=*/0, blocks);
    for (uint32_t victim = static_cast<uint32_t>(running_.size()); blocks_free_ < blocks;) {
      if (--victim <= index) return false;
      if (preempted_[victim] || running_[victim].pinned) continue;
      preempted_[victim] = true;
      plan_.preempt.push_back(victim);
      blocks_free_ += running_[victim].blocks + running_[victim].reserved;
    }
    return true;
  }

  // Makes `blocks` free for waiting sequence `index`, out of what those behind it have reserved;
  // all of them or none.
  bool FreeForStart(uint32_t index, uint32_t blocks) {
    uint32_t obtainable = blocks_free_;
    for (uint32_t i = index + 1; i < waiting_.size() && obtainable < blocks; ++i) {
      obtainable += reserved_[i];
    }
    if (obtainable < blocks) return false;
    Revoke(index + 1, blocks);
    return true;
  }

  // Until `blocks` are free or waiting sequences from `from` on have no more reservations; youngest
  // first.
  void Revoke(uint32_t from, uint32_t blocks) {
    for (uint32_t i = static_cast<uint32_t>(waiting_.size()); i > from && blocks_free_ < blocks;) {
      --i;
      const uint32_t part = std::min(reserved_[i], blocks - blocks_free_);
      reserved_[i] -= part;
      blocks_free_ += part;
    }
  }

  void ListRevoked() {
    for (uint32_t i = 0; i < waiting_.size(); ++i) {
      const uint32_t blocks = waiting_[i].reserved - reserved_[i];
      if (blocks > 0) plan_.revoke.push_back({.index = i, .blocks = blocks});
    }
  }

  uint32_t MissingBlocks(const PlannerSequence& sequence) const {
    const uint32_t wanted = BlocksFor(sequence.tokens, limits_.block_tokens);
    return wanted - std::min(wanted, sequence.blocks);
  }

  uint32_t ChunkFor(const PlannerSequence& sequence) const {
    if (packed_left_ == 0) return 0;
    uint32_t tokens = std::min(sequence.tokens - sequence.computed, prefill_left_);
    if (sequence.all_logits) tokens = std::min(tokens, logit_rows_left_);
    return tokens;
  }

  uint32_t TakeChunk(const PlannerSequence& sequence) {
    const uint32_t tokens = ChunkFor(sequence);
    if (tokens == 0) return 0;
    prefill_left_ -= tokens;
    if (sequence.all_logits) logit_rows_left_ -= tokens;
    --packed_left_;
    return tokens;
  }

  absl::Span<const PlannerSequence> running_;
  absl::Span<const PlannerSequence> waiting_;
  const PlannerLimits& limits_;
  StepPlan plan_;
  std::vector<bool> preempted_;     // Per running sequence.
  std::vector<uint32_t> reserved_;  // Per waiting sequence, what it still has.
  uint32_t blocks_free_;
  uint32_t prefill_left_ = 0;
  uint32_t logit_rows_left_;
  uint32_t packed_left_;
};

}  // namespace

StepPlan PlanStep(const PlannerSnapshot& snapshot, const PlannerLimits& limits) {
  return Planner(snapshot, limits).Plan();
}

}  // namespace baton::runner
