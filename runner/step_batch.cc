#include "runner/step_batch.h"

#include <algorithm>

#include "base/check.h"

namespace baton::runner {
namespace {

// From the first row that tells of a prompt token not told yet, else the row that draws.
uint32_t LogitRows(const BatchEntry& entry) {
  const Sequence& sequence = *entry.sequence;
  uint32_t first = entry.draws() ? entry.end() - 1 : entry.end();
  if (sequence.wants_prompt_logprobs()) {
    // Row r tells of token r + 1; token 0 has no row.
    const uint32_t next = static_cast<uint32_t>(sequence.prompt_logprobs.size()) - 1;
    const uint32_t row = std::max(sequence.computed, next);
    if (row + 1 < sequence.request.output_start) first = std::min(first, row);
  }
  return entry.end() - first;
}

}  // namespace

StepBatch::StepBatch(model::Model& model, const kernels::PagedKvView& kv,
                     [[maybe_unused]] const RunnerConfig& config, StepObserver* observer)
    : model_(model), kv_(kv), observer_(observer) {
#ifdef BATON_PLANTED_FAULTS
  planted_fault_ = config.planted_fault;
#endif
}

void StepBatch::Run(absl::Span<BatchEntry> entries) {
  tokens_.clear();
  sequences_.clear();
  final_blocks_.clear();
  size_t logit_rows = 0;
  for (BatchEntry& entry : entries) {
    entry.logit_rows = LogitRows(entry);
    logit_rows += entry.logit_rows;
    Add(entry);
  }
#ifdef BATON_PLANTED_FAULTS
  PlantFault(entries);
#endif
  logit_size_ = logit_rows * model_.info().vocabulary_size;
  if (logits_.size() < logit_size_) logits_.resize(logit_size_);

  model_.Forward({.tokens = tokens_, .sequences = sequences_}, kv_,
                 final_blocks_.empty() ? nullptr : this, logits());
}

void StepBatch::Add(BatchEntry& entry) {
  const Sequence& sequence = *entry.sequence;
  CHECK(entry.tokens > 0);
  CHECK_LE(entry.end(), sequence.token_count());
  CHECK_LE(entry.end(), sequence.table.size() * kv_.layout.block_tokens);
  const auto first = sequence.request.tokens.begin() + sequence.computed;
  tokens_.insert(tokens_.end(), first, first + entry.tokens);
  sequences_.push_back({.blocks = sequence.table,
                        .start_position = sequence.computed,
                        .token_count = entry.tokens,
                        .logit_rows = entry.logit_rows});
  if (sequence.request.hand_off) AddFinalBlocks(entry);
}

void StepBatch::AddFinalBlocks(const BatchEntry& entry) {
  Sequence& sequence = *entry.sequence;
  const uint32_t block_tokens = kv_.layout.block_tokens;
  const uint32_t final_end =
      entry.draws() ? BlocksFor(entry.end(), block_tokens) : entry.end() / block_tokens;
  if (final_end == sequence.told_blocks) return;
  FinalBlocks final{.id = sequence.request.id, .first_block = sequence.told_blocks};
  for (uint32_t block = sequence.told_blocks; block < final_end; ++block) {
    final.blocks.push_back(kvstore::KvBlockId{sequence.table[block]});
  }
  final_blocks_.push_back(std::move(final));
  sequence.told_blocks = final_end;
}

void StepBatch::OnLayerWritten(uint32_t layer) {
  for (const FinalBlocks& final : final_blocks_) {
    observer_->OnBlocksWritten(final.id, layer, final.first_block, final.blocks);
  }
}

#ifdef BATON_PLANTED_FAULTS
void StepBatch::PlantFault(absl::Span<const BatchEntry> entries) {
  faulty_tables_.clear();
  faulty_tables_.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].decode) continue;
    if (planted_fault_ == PlantedFault::kWrongPosition) --sequences_[i].start_position;
    if (planted_fault_ == PlantedFault::kStaleBlock) {
      std::vector<uint32_t>& table = faulty_tables_.emplace_back(entries[i].sequence->table);
      table.front() = table.back();
      sequences_[i].blocks = table;
    }
  }
}
#endif

}  // namespace baton::runner
