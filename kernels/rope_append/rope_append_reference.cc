#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/rope_append/rope_append.h"
#include "kernels/tensor_view.h"

namespace baton::kernels {
namespace {

constexpr float kHalfMax = 65504.0f;

// Stores element `index` of a plane of K or V.
void Store(uint8_t* plane, KvType type, uint64_t index, float value) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(plane + index * sizeof(float), &value, sizeof(value));
      return;
    case KvType::kF16: {
      const uint16_t half = FloatToHalf(std::clamp(value, -kHalfMax, kHalfMax));
      std::memcpy(plane + index * sizeof(half), &half, sizeof(half));
      return;
    }
    case KvType::kBf16: {
      const uint16_t bf16 = FloatToBf16(value);
      std::memcpy(plane + index * sizeof(bf16), &bf16, sizeof(bf16));
      return;
    }
  }
}

// x [head_dim] -> y [head_dim]; may be the same. cos, sin [rope_dims / 2].
void Rotate(const float* x, const float* cos, const float* sin, uint32_t rope_dims,
            uint32_t head_dim, float* y) {
  for (uint32_t i = 0; i < rope_dims / 2; ++i) {
    const float x0 = x[2 * i];
    const float x1 = x[2 * i + 1];
    y[2 * i] = x0 * cos[i] - x1 * sin[i];
    y[2 * i + 1] = x1 * cos[i] + x0 * sin[i];
  }
  std::copy(x + rope_dims, x + head_dim, y + rope_dims);
}

void AppendRow(const RopeAppendArgs& args, float* row, uint32_t position, uint32_t block) {
  const KvLayout& layout = args.kv.layout;
  const uint32_t dims = layout.head_dim;
  const float* cos = args.cos + uint64_t{position} * (args.rope_dims / 2);
  const float* sin = args.sin + uint64_t{position} * (args.rope_dims / 2);
  for (uint32_t head = 0; head < args.heads; ++head) {
    float* q = row + head * dims;
    Rotate(q, cos, sin, args.rope_dims, dims, q);
  }
  const uint32_t token = position % layout.block_tokens;
  std::vector<float> rotated(dims);
  for (uint32_t head = 0; head < layout.kv_heads; ++head) {
    const float* k = row + (args.heads + head) * dims;
    const float* v = row + (args.heads + layout.kv_heads + head) * dims;
    Rotate(k, cos, sin, args.rope_dims, dims, rotated.data());
    for (uint32_t dim = 0; dim < dims; ++dim) {
      Store(args.kv.K(args.layer, block, head), layout.type, KIndex(layout, token, dim),
            rotated[dim]);
      Store(args.kv.V(args.layer, block, head), layout.type, VIndex(layout, token, dim), v[dim]);
    }
  }
}

}  // namespace

void RopeAppendReference(const RopeAppendArgs& args, KernelContext&) {
  CheckArgs(args);
  float* row = args.qkv;
  for (const SequenceRows& sequence : args.sequences) {
    for (uint32_t i = 0; i < sequence.row_count; ++i, row += args.qkv_stride) {
      const uint32_t position = sequence.start_position + i;
      AppendRow(args, row, position, sequence.blocks[position / args.kv.layout.block_tokens]);
    }
  }
}

}  // namespace baton::kernels
