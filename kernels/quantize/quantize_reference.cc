#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/quantize/quantize.h"

namespace baton::kernels {
namespace {

void QuantizeGroup(const float* x, uint32_t lane, ActivationGroup& group) {
  float max = 0.0f;
  for (uint32_t k = 0; k < kGroupElements; ++k) max = std::max(max, std::fabs(x[k]));
  const bool zero = max < 0x1p-100f;
  const float inverse = zero ? 0.0f : 127.0f / max;
  int32_t half_sums[2] = {0, 0};
  for (uint32_t k = 0; k < kGroupElements; ++k) {
    const float scaled = x[k] * inverse;
    const float clamped = scaled > -127.0f ? std::min(scaled, 127.0f) : -127.0f;  // NaN: -127.
    // The rounding mode is to nearest, ties to even.
    const auto q = static_cast<int8_t>(std::nearbyint(clamped));
    group.q[k / 4][lane][k % 4] = q;
    half_sums[k / 16] += q;
  }
  const int32_t sum = half_sums[0] + half_sums[1];
  group.scale[lane] = zero ? 0.0f : max / 127.0f;
  group.sum[lane] = group.scale[lane] * static_cast<float>(sum);
  group.start[lane] = -128 * sum;
  group.half_start[0][lane] = -128 * half_sums[0];
  group.half_start[1][lane] = -128 * half_sums[1];
}

}  // namespace

void CheckArgs(const QuantizeArgs& args) {
  CHECK(args.y != nullptr);
  CHECK(args.rows == 0 || args.x != nullptr);
  CHECK_LE(args.columns, args.x_stride);
}

void QuantizeRowReference(const float* x, uint32_t row, Activations& y) {
  const uint32_t lane = row % kRowBlock;
  if (y.format() == ActivationFormat::kF32) {
    float* floats = y.Floats(row / kRowBlock);
    for (uint32_t k = 0; k < y.columns(); ++k) floats[k * kRowBlock + lane] = x[k];
    return;
  }
  ActivationGroup* groups = y.Groups(row / kRowBlock);
  for (uint32_t g = 0; g < y.columns() / kGroupElements; ++g) {
    QuantizeGroup(x + g * kGroupElements, lane, groups[g]);
  }
}

void QuantizeReference(const QuantizeArgs& args, KernelContext&) {
  CheckArgs(args);
  args.y->Reset(args.format, args.rows, args.columns);
  for (uint32_t row = 0; row < args.rows; ++row) {
    QuantizeRowReference(args.x + row * args.x_stride, row, *args.y);
  }
}

}  // namespace baton::kernels
