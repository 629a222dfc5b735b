// Quantisation of a block of kRowBlock rows, shared by quantize and rms_norm. Only for files
// compiled for AVX-512.
//
// Rows are taken four at a time, so that maxima, rounding and sums of four rows share their
// shuffles. `load(row, k)` gives elements k .. k + 15 of a row of the block (zero past the end of
// the row).
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/matmul/activations.h"

namespace baton::kernels {

// Lane r of the result: the largest of the 16 lanes of v[r].
inline __m128 RowMaxima(const __m512 (&v)[4]) {
  const __m512 v01 = _mm512_max_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 v23 = _mm512_max_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512d d01 = _mm512_castps_pd(v01);
  const __m512d d23 = _mm512_castps_pd(v23);
  const __m512 v0123 = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(d01, d23)),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(d01, d23)));
  const __m256 half =
      _mm256_max_ps(_mm512_castps512_ps256(v0123), _mm512_extractf32x8_ps(v0123, 1));
  return _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Rounds 16 elements of 4 rows to bytes: dword 4 * quad + row.
inline __m512i RoundToQuads(const __m512 (&v)[4]) {
  const __m512i rows01 = _mm512_packs_epi32(_mm512_cvtps_epi32(v[0]), _mm512_cvtps_epi32(v[1]));
  const __m512i rows23 = _mm512_packs_epi32(_mm512_cvtps_epi32(v[2]), _mm512_cvtps_epi32(v[3]));
  return _mm512_packs_epi16(rows01, rows23);
}

// Lane r of the result: the sum of the 16 bytes of row r.
inline __m128i RowSums(__m512i quads) {
  const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), quads);
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

inline __m128i TimesMinus128(__m128i v) {
  return _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(v, 7));
}

// Rows [kFirst, kFirst + kCount) of the block, kCount <= 4; elements k .. k + 31.
template <uint32_t kFirst, uint32_t kCount, typename Load>
inline void QuantizeRows(Load load, uint32_t k, ActivationGroup& group) {
  constexpr __mmask8 kRows = (1 << kCount) - 1;
  __m512 x[2][4];
  __m512 magnitude[4];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < 4; ++r) {
    x[0][r] = r < kCount ? load(kFirst + r, k) : _mm512_setzero_ps();
    x[1][r] = r < kCount ? load(kFirst + r, k + 16) : _mm512_setzero_ps();
    magnitude[r] = _mm512_max_ps(_mm512_abs_ps(x[0][r]), _mm512_abs_ps(x[1][r]));
  }
  const __m128 max = RowMaxima(magnitude);
  const __mmask8 nonzero = _mm_cmp_ps_mask(max, _mm_set1_ps(0x1p-100f), _CMP_GE_OQ);
  const __m128 limit = _mm_set1_ps(127.0f);
  const __m128 scale = _mm_maskz_div_ps(nonzero, max, limit);
  const __m512 inverses = _mm512_broadcast_f32x4(_mm_maskz_div_ps(nonzero, limit, max));
  const __m512 inverse[4] = {_mm512_permute_ps(inverses, 0x00), _mm512_permute_ps(inverses, 0x55),
                             _mm512_permute_ps(inverses, 0xAA), _mm512_permute_ps(inverses, 0xFF)};
  __m128i sum = _mm_setzero_si128();
#pragma GCC unroll 2
  for (uint32_t half = 0; half < 2; ++half) {
#pragma GCC unroll 4
    for (uint32_t r = 0; r < 4; ++r) x[half][r] = _mm512_mul_ps(x[half][r], inverse[r]);
    const __m512i quads = RoundToQuads(x[half]);
    const __m128i quad[4] = {_mm512_castsi512_si128(quads), _mm512_extracti32x4_epi32(quads, 1),
                             _mm512_extracti32x4_epi32(quads, 2),
                             _mm512_extracti32x4_epi32(quads, 3)};
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      _mm_mask_storeu_epi32(group.q[4 * half + i][kFirst], kRows, quad[i]);
    }
    const __m128i half_sum = RowSums(quads);
    sum = _mm_add_epi32(sum, half_sum);
    _mm_mask_storeu_epi32(group.half_start[half] + kFirst, kRows, TimesMinus128(half_sum));
  }
  _mm_mask_storeu_ps(group.scale + kFirst, kRows, scale);
  _mm_mask_storeu_ps(group.sum + kFirst, kRows, _mm_mul_ps(scale, _mm_cvtepi32_ps(sum)));
  _mm_mask_storeu_epi32(group.start + kFirst, kRows, TimesMinus128(sum));
}

template <typename Load>
void InterleaveFloats(Load load, uint32_t columns, float* out) {
  for (uint32_t k = 0; k < columns; k += 16) {
    alignas(64) float rows[kRowBlock][16];
    for (uint32_t r = 0; r < kRowBlock; ++r) _mm512_store_ps(rows[r], load(r, k));
    const uint32_t count = std::min(16u, columns - k);
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t r = 0; r < kRowBlock; ++r) out[(k + i) * kRowBlock + r] = rows[r][i];
    }
  }
}

template <typename Load>
void QuantizeBlock(Load load, uint32_t block, Activations& y) {
  if (y.format() == ActivationFormat::kF32) {
    InterleaveFloats(load, y.columns(), y.Floats(block));
    return;
  }
  static_assert(kRowBlock == 6);
  const bool few = y.rows() - block * kRowBlock <= 4;  // The rows left, if this is the last block.
  ActivationGroup* groups = y.Groups(block);
  for (uint32_t g = 0; g < y.columns() / kGroupElements; ++g) {
    QuantizeRows<0, 4>(load, g * kGroupElements, groups[g]);
    if (!few) QuantizeRows<4, 2>(load, g * kGroupElements, groups[g]);
  }
}

// The lanes of 16 elements from `k` on that lie inside a row of `columns`.
inline __mmask16 RowMask(uint32_t k, uint32_t columns) {
  return columns - k >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (columns - k)) - 1);
}

}  // namespace baton::kernels
