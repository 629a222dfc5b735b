#include <cmath>

#include "kernels/quantize/quantize_block_avx512.h"
#include "kernels/rms_norm/rms_norm.h"

namespace baton::kernels {
namespace {

void AddResidual(const float* residual, uint32_t hidden, float* x) {
  for (uint32_t h = 0; h < hidden; h += 16) {
    const __mmask16 mask = RowMask(h, hidden);
    const __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + h),
                                     _mm512_maskz_loadu_ps(mask, residual + h));
    _mm512_mask_storeu_ps(x + h, mask, sum);
  }
}

float SumOfSquares(const float* x, uint32_t hidden) {
  __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                    _mm512_setzero_ps()};
  for (uint32_t h = 0; h < hidden; h += 64) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t at = h + 16 * i;
      const __m512 v =
          at < hidden ? _mm512_maskz_loadu_ps(RowMask(at, hidden), x + at) : _mm512_setzero_ps();
      sums[i] = _mm512_fmadd_ps(v, v, sums[i]);
    }
  }
  const __m512 sum =
      _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
  return _mm512_reduce_add_ps(sum);
}

}  // namespace

void RmsNormAvx512(const RmsNormArgs& args, KernelContext& context) {
  CheckArgs(args);
  args.y->Reset(args.format, args.tokens, args.hidden);
  context.ForEachTile(args.y->block_count(), [&](uint32_t block, uint32_t) {
    const float* rows[kRowBlock];
    __m512 scales[kRowBlock];
    for (uint32_t r = 0; r < kRowBlock; ++r) {
      const uint32_t token = block * kRowBlock + r;
      if (token >= args.tokens) {  // Repeats the last row: what becomes of it is not read.
        rows[r] = rows[r - 1];
        scales[r] = scales[r - 1];
        continue;
      }
      const uint64_t row = args.row_indices != nullptr ? args.row_indices[token] : token;
      float* x = args.x + row * args.x_stride;
      if (args.residual != nullptr) {
        AddResidual(args.residual + row * args.residual_stride, args.hidden, x);
      }
      const float mean = SumOfSquares(x, args.hidden) / static_cast<float>(args.hidden);
      rows[r] = x;
      scales[r] = _mm512_set1_ps(1.0f / std::sqrt(mean + args.epsilon));
    }
    const auto load = [&](uint32_t r, uint32_t h) {
      const __mmask16 mask = RowMask(h, args.hidden);
      const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, rows[r] + h), scales[r]);
      return _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, args.weight + h));
    };
    QuantizeBlock(load, block, *args.y);
  });
}

}  // namespace baton::kernels
