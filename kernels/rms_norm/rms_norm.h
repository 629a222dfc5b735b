// Residual add, RMSNorm and quantisation of rows, in one pass over each:
//
//   x[t] += residual[t]                                      (if there is a residual)
//   y[t]  = quantised(x[t, h] * scale(t) * weight[h])
//   scale(t) = 1 / sqrt(mean_h(x[t, h]^2) + epsilon)
//
//   x         f32, rows x_stride elements apart; updated in place if there is a residual,
//             otherwise only read
//   residual  f32, rows residual_stride elements apart, or null; no overlap with x
//   weight    [hidden] f32
//   rows      row t of y comes from row row_indices[t] of x and residual; null: from row t
//   y         Activations, Reset() by the op to (format, tokens, hidden); kF32 gives the plain norm
//
// The sum of squares is f32 in a fixed order (the reference: f64); levels agree within 1e-5
// relative before quantisation.
#pragma once

#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/matmul/activations.h"

namespace baton::kernels {

struct RmsNormArgs {
  float* x = nullptr;
  uint64_t x_stride = 0;  // >= hidden.
  const float* residual = nullptr;
  uint64_t residual_stride = 0;           // >= hidden.
  const uint32_t* row_indices = nullptr;  // [tokens], distinct if there is a residual.
  const float* weight = nullptr;
  uint32_t tokens = 0;   // 0 is legal and writes nothing.
  uint32_t hidden = 0;   // > 0; kInt8: a multiple of 32.
  float epsilon = 0.0f;  // > 0.
  ActivationFormat format = ActivationFormat::kInt8;
  Activations* y = nullptr;
};

using RmsNormFn = void (*)(const RmsNormArgs& args, KernelContext& context);

void RmsNormReference(const RmsNormArgs& args, KernelContext& context);
void RmsNormAvx512(const RmsNormArgs& args, KernelContext& context);
// Only in builds with the CUDA toolkit. All that the args point to, y's rows included, is memory
// that the device can access; the work is enqueued on the default stream. `context` is not used.
void RmsNormCuda(const RmsNormArgs& args, KernelContext& context);

// CHECKs the contract above; every backend calls it first.
void CheckArgs(const RmsNormArgs& args);

}  // namespace baton::kernels
