#include "kernels/kv_rows.h"

#include "base/check.h"

namespace baton::kernels {

uint32_t CheckRows(absl::Span<const SequenceRows> sequences, const PagedKvView& kv) {
  uint32_t rows = 0;
  for (const SequenceRows& sequence : sequences) {
    CHECK(sequence.row_count >= 1);
    const uint64_t end = uint64_t{sequence.start_position} + sequence.row_count;
    CHECK_LE(end, uint64_t{sequence.blocks.size()} * kv.layout.block_tokens);
    for (uint64_t token = 0; token < end; token += kv.layout.block_tokens) {
      CHECK_LT(sequence.blocks[token / kv.layout.block_tokens], kv.block_count);
    }
    rows += sequence.row_count;
  }
  return rows;
}

}  // namespace baton::kernels
