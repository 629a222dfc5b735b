#include "kernels/rope_append/rope_append.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/rope_append/rope_append_row.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kTileRows = 8;

void AppendRow(const RopeAppendArgs& args, const SequenceRows& sequence, uint64_t row,
               uint32_t position) {
  const KvLayout& layout = args.kv.layout;
  float* const q = args.qkv + row * args.qkv_stride;
  float* const k = q + uint64_t{args.heads} * layout.head_dim;
  const uint64_t table_row = uint64_t{position} * (args.rope_dims / 2);
  RopeAppendRowAvx512({.q = q,
                       .k = k,
                       .v = k + uint64_t{layout.kv_heads} * layout.head_dim,
                       .cos = args.cos + table_row,
                       .sin = args.sin + table_row,
                       .rope_dims = args.rope_dims,
                       .heads = args.heads,
                       .kv_heads = layout.kv_heads,
                       .head_dim = layout.head_dim,
                       .type = layout.type,
                       .block_tokens = layout.block_tokens,
                       .token = position % layout.block_tokens,
                       .k_plane = args.kv.K(args.layer, sequence.blocks[position / layout.block_tokens], 0),
                       .plane_bytes = layout.plane_bytes()});
}

}  // namespace

uint32_t CheckArgs(const RopeAppendArgs& args) {
  const KvLayout& layout = args.kv.layout;
  CHECK_OK(Validate(layout));
  CHECK_LT(args.layer, layout.layers);
  CHECK(args.heads > 0);
  CHECK_LE(uint64_t{args.heads + 2 * layout.kv_heads} * layout.head_dim, args.qkv_stride);
  CHECK(args.rope_dims % 2 == 0 && args.rope_dims <= layout.head_dim) << args.rope_dims;
  CHECK(args.rope_dims == 0 || (args.cos != nullptr && args.sin != nullptr));
  return CheckRows(args.sequences, args.kv);
}

void RopeAppendAvx512(const RopeAppendArgs& args, KernelContext& context) {
  const uint32_t rows = CheckArgs(args);
  // Row of the batch at which each sequence ends.
  std::vector<uint32_t> ends;
  ends.reserve(args.sequences.size());
  for (const SequenceRows& sequence : args.sequences) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + sequence.row_count);
  }
  context.ForEachTile((rows + kTileRows - 1) / kTileRows, [&](uint32_t tile, uint32_t) {
    const uint32_t end = std::min(rows, (tile + 1) * kTileRows);
    uint32_t row = tile * kTileRows;
    size_t index = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
    for (; row < end; ++row) {
      if (row == ends[index]) ++index;
      const SequenceRows& sequence = args.sequences[index];
      AppendRow(args, sequence, row,
                sequence.start_position + row - (ends[index] - sequence.row_count));
    }
  });
}

}  // namespace baton::kernels
