// The batch of one step in the model's terms: rows and logit rows out of what the planner chose,
// and the way back from layers to blocks that are final. Kept between steps for its buffers.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/kv_layout.h"
#include "kvstore/kv_block_pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "runner/sequence.h"

namespace baton::runner {

// One sequence's part of the batch: tokens [sequence->computed, sequence->computed + tokens).
struct BatchEntry {
  Sequence* sequence = nullptr;
  uint32_t tokens = 0;
  uint32_t new_blocks = 0;
  bool decode = false;
  uint32_t logit_rows = 0;  // Of its last rows.

  uint32_t end() const { return sequence->computed + tokens; }
  bool draws() const { return end() == sequence->token_count(); }
};

class StepBatch final : private model::LayerObserver {
 public:
  // Borrows all; they outlive it. `observer` may be null.
  StepBatch(model::Model& model, const kernels::PagedKvView& kv, const RunnerConfig& config,
            StepObserver* observer);

  // Computes the entries, whose tables must cover their rows already. Fills their logit_rows.
  void Run(absl::Span<BatchEntry> entries);

  // Logits of the last Run(): [sum of logit_rows, vocabulary_size], in the order of the entries.
  absl::Span<float> logits() { return absl::MakeSpan(logits_).first(logit_size_); }

 private:
  // Blocks of a hand_off sequence that this batch makes final, in every layer.
  struct FinalBlocks {
    SequenceId id;
    uint32_t first_block;
    std::vector<kvstore::KvBlockId> blocks;
  };

  void Add(BatchEntry& entry);
  void AddFinalBlocks(const BatchEntry& entry);
  void OnLayerWritten(uint32_t layer) override;
#ifdef BATON_PLANTED_FAULTS
  void PlantFault(absl::Span<const BatchEntry> entries);
#endif

  model::Model& model_;
  const kernels::PagedKvView kv_;
  StepObserver* const observer_;
  std::vector<uint32_t> tokens_;
  std::vector<model::ForwardSequence> sequences_;
  std::vector<FinalBlocks> final_blocks_;
  std::vector<float> logits_;  // Grows to the largest step.
  size_t logit_size_ = 0;
#ifdef BATON_PLANTED_FAULTS
  PlantedFault planted_fault_ = PlantedFault::kNone;
  std::vector<std::vector<uint32_t>> faulty_tables_;
#endif
};

}  // namespace baton::runner
