// The linear layers: out = epilogue(x W^T + bias).
//
//   x        Activations [M, K], in weights.activation_format()
//   weights  PackedMatrix [N, K]
//   bias     [N] f32 in the order of the stacked tensors (kSwiGlu: gate's, then up's), or null
//   out      [M, weights.out_columns()] f32, rows out_stride elements apart
//
//   kStore    out  = y
//   kAdd      out += y                            (the residual)
//   kSwiGlu   out  = silu(y_gate) * y_up          (weights.order() == kGateUp, and only then)
//
// with y = x W^T + bias. Numerics of quantised weights, per result, groups in ascending order of k:
//
//   y = fma(float(sum_k q_w q_x), d_w * scale_x, y)   exact int32 sum over a group
//   y = fma(m_w, scale_x * sum_k q_x, y)              Q4_1 and Q4_K only: w = d_w q_w + m_w
//
// A group is 32 elements, of Q6_K 16. d_w is the file's own scale (Q4_K and Q6_K: the f32 product
// of d and the integer scale). F32, F16
// and BF16 weights: f32 products, summed over runs of 64 elements, runs added in order. A row of
// results depends on that row of x and the weights only: same bits for any M, thread count and
// level of cache use. Levels differ from each other in last bits (the reference sums F32 products
// in f64), within 1e-5 of sum |x| |w|.
//
// Work: 2 M N K operations; bytes: the weights once (M small) plus 4 M (N + K).
#pragma once

#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/matmul/activations.h"
#include "kernels/matmul/packed_matrix.h"

namespace baton::kernels {

enum class Epilogue : uint8_t { kStore, kAdd, kSwiGlu };

struct MatmulArgs {
  const Activations* x = nullptr;
  const PackedMatrix* weights = nullptr;
  const float* bias = nullptr;
  Epilogue epilogue = Epilogue::kStore;
  float* out = nullptr;
  uint64_t out_stride = 0;  // >= weights->out_columns().
};

using MatmulFn = void (*)(const MatmulArgs& args, KernelContext& context);

void MatmulReference(const MatmulArgs& args, KernelContext& context);  // Layout kRows.
void MatmulAvx512(const MatmulArgs& args, KernelContext& context);     // Layout kPanels.

// CHECKs the contract above; every backend calls it first.
void CheckArgs(const MatmulArgs& args, PackedLayout layout);

}  // namespace baton::kernels
