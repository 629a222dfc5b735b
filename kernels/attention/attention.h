// Causal attention over paged KV, one contract for prefill chunks and decode rows. For row t at position p and head h, which
// reads KV head g = h / (heads / kv_heads):
//
//   score[k] = scale * sum_d q[t, h, d] * K[k, g, d]                     k = 0 .. p
//   out[t, h, d] = sum_k softmax(score)[k] * V[k, g, d]
//
//   q    f32, row t at q + t * q_stride: [heads, head_dim], rotated already
//   out  f32, row t at out + t * out_stride: [heads, head_dim]; no overlap with q
//   kv   K and V of positions 0 .. p in `layer`, the row's own included. What stands behind p in its last block is
//        multiplied by 0, so it must be finite; blocks behind it are not read.
//
// Rows of a batch are rows of sequences[0], then of sequences[1], and so on. By the row contract the bits of a row's output
// depend on its q, its position and the KV before it only: not on block size and place, chunk, batch, tile or threads.
//
//   level           KV f32, f16                        KV bf16
//   reference       f64 sums                           f64 sums
//   avx512-nobf16   f32 FMA, widened in registers      the same
//   avx512          the same                           q and softmax rounded to bf16, vdpbf16ps
//
// With a and v the largest |score| and |V|, levels stay within 1e-5 * (1 + a) * v of the reference in f32, within
// 2^-7 * (1 + a) * v where q and softmax are bf16.
// Flops: 4 * head_dim a (row, head, key). vdpbf16ps has twice the rate of an FMA on Zen 4, half of it on Emerald Rapids.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/kernel_context.h"
#include "kernels/kv_layout.h"
#include "kernels/kv_rows.h"

namespace baton::kernels {

struct AttentionArgs {
  const float* q = nullptr;
  uint64_t q_stride = 0;  // >= heads * head_dim.
  float* out = nullptr;
  uint64_t out_stride = 0;  // >= heads * head_dim.
  uint32_t heads = 0;       // A multiple of the layout's kv_heads.
  float scale = 0.0f;       // > 0; usually 1 / sqrt(head_dim).
  absl::Span<const SequenceRows> sequences;
  PagedKvView kv;
  uint32_t layer = 0;
};

using AttentionFn = void (*)(const AttentionArgs& args, KernelContext& context);

void AttentionReference(const AttentionArgs& args, KernelContext& context);
void AttentionAvx512NoBf16(const AttentionArgs& args, KernelContext& context);
void AttentionAvx512(const AttentionArgs& args, KernelContext& context);

// CHECKs the contract above; every level calls it first. Returns the number of rows.
uint32_t CheckArgs(const AttentionArgs& args);

}  // namespace baton::kernels
