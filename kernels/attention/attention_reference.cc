#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/tensor_view.h"

namespace baton::kernels {
namespace {

// Element `index` of a plane of K or V.
float Load(const uint8_t* plane, KvType type, uint64_t index) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, plane + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, plane + index * sizeof(bits), sizeof(bits));
  return type == KvType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
}

// q, out [head_dim] of one head, which sees positions [0, length).
void AttendHead(const AttentionArgs& args, const SequenceRows& sequence, uint32_t length,
                uint32_t kv_head, const float* q, float* out) {
  const KvLayout& layout = args.kv.layout;
  const uint32_t dims = layout.head_dim;
  std::vector<double> weights(length);
  double maximum = -HUGE_VAL;
  for (uint32_t key = 0; key < length; ++key) {
    const uint32_t block = sequence.blocks[key / layout.block_tokens];
    const uint8_t* k = args.kv.K(args.layer, block, kv_head);
    double score = 0.0;
    for (uint32_t dim = 0; dim < dims; ++dim) {
      score += double{q[dim]} * Load(k, layout.type, KIndex(layout, key % layout.block_tokens, dim));
    }
    weights[key] = score * args.scale;
    maximum = std::max(maximum, weights[key]);
  }
  std::vector<double> sums(dims, 0.0);
  double total = 0.0;
  for (uint32_t key = 0; key < length; ++key) {
    const uint32_t block = sequence.blocks[key / layout.block_tokens];
    const uint8_t* v = args.kv.V(args.layer, block, kv_head);
    const double weight = std::exp(weights[key] - maximum);
    total += weight;
    for (uint32_t dim = 0; dim < dims; ++dim) {
      sums[dim] += weight * Load(v, layout.type, VIndex(layout, key % layout.block_tokens, dim));
    }
  }
  for (uint32_t dim = 0; dim < dims; ++dim) out[dim] = static_cast<float>(sums[dim] / total);
}

}  // namespace

uint32_t CheckArgs(const AttentionArgs& args) {
  const KvLayout& layout = args.kv.layout;
  CHECK_OK(Validate(layout));
  CHECK_LT(args.layer, layout.layers);
  CHECK(args.heads > 0 && args.heads % layout.kv_heads == 0) << args.heads;
  CHECK_LE(uint64_t{args.heads} * layout.head_dim, args.q_stride);
  CHECK_LE(uint64_t{args.heads} * layout.head_dim, args.out_stride);
  CHECK(args.scale > 0.0f);
  return CheckRows(args.sequences, args.kv);
}

void AttentionReference(const AttentionArgs& args, KernelContext& context) {
  CheckArgs(args);
  const uint32_t dims = args.kv.layout.head_dim;
  const uint32_t heads_per_kv_head = args.heads / args.kv.layout.kv_heads;
  uint64_t first_row = 0;
  for (const SequenceRows& sequence : args.sequences) {
    context.ForEachTile(sequence.row_count * args.heads, [&](uint32_t tile, uint32_t) {
      const uint32_t head = tile % args.heads;
      const uint64_t row = first_row + tile / args.heads;
      AttendHead(args, sequence, sequence.start_position + tile / args.heads + 1,
                 head / heads_per_kv_head, args.q + row * args.q_stride + head * dims,
                 args.out + row * args.out_stride + head * dims);
    });
    first_row += sequence.row_count;
  }
}

}  // namespace baton::kernels
