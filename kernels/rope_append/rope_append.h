// Rotary position embedding of Q and K, and the write of K and V into their blocks. For row t at position p of its
// sequence and each head of Q and of K, the first rope_dims dims rotate in interleaved pairs:
//
//   y[2i]     = x[2i] * cos[p, i] - x[2i + 1] * sin[p, i]
//   y[2i + 1] = x[2i + 1] * cos[p, i] + x[2i] * sin[p, i]
//
//   qkv   [rows, (heads + 2 * kv_heads) * head_dim] f32, rows qkv_stride elements apart: Q heads, K heads, V heads. Q is
//         rotated in place; K and V are only read.
//   cos   [positions, rope_dims / 2] f32, for every position of the rows; sin likewise. Scaling of RoPE is in the tables.
//   kv    K and V of the row's position in `layer`, converted to layout.type: round to nearest even; f16 saturates at
//         +-65504, so that what is written is finite if the input is.
//
// Rows of a batch are rows of sequences[0], then of sequences[1], and so on. Nothing else in the arena is touched: a token shares
// memory words with its neighbour in a pair (kv_layout.h), which another thread may be writing.
// Levels agree within f32 rounding before the conversion.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/kernel_context.h"
#include "kernels/kv_layout.h"
#include "kernels/kv_rows.h"

namespace baton::kernels {

struct RopeAppendArgs {
  float* qkv = nullptr;
  uint64_t qkv_stride = 0;  // >= (heads + 2 * kv_heads) * head_dim.
  const float* cos = nullptr;
  const float* sin = nullptr;
  uint32_t rope_dims = 0;  // Even, <= head_dim; 0: no rotation.
  uint32_t heads = 0;      // > 0. kv_heads and head_dim are the layout's.
  absl::Span<const SequenceRows> sequences;  // Disjoint positions.
  PagedKvView kv;
  uint32_t layer = 0;
};

using RopeAppendFn = void (*)(const RopeAppendArgs& args, KernelContext& context);

void RopeAppendReference(const RopeAppendArgs& args, KernelContext& context);
void RopeAppendAvx512(const RopeAppendArgs& args, KernelContext& context);

// CHECKs the contract above; every level calls it first. Returns the number of rows.
uint32_t CheckArgs(const RopeAppendArgs& args);

}  // namespace baton::kernels
