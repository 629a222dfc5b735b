#include <immintrin.h>

#include <cstring>

#include "kernels/rope_append/rope_append_row.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kLanes = 16;

__mmask16 LanesBelow(uint32_t first, uint32_t end) {
  if (end <= first) return 0;
  return end - first >= kLanes ? 0xffff : static_cast<__mmask16>((1u << (end - first)) - 1);
}

// f32 -> bf16 in the low halves of the lanes, to nearest even; NaN stays NaN.
__m512i RoundToBf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
}

// f32 -> f16 in the low halves of the lanes, to nearest even, saturated; NaN stays NaN.
__m512i RoundToF16(__m512 x) {
  const __m512 bounded = _mm512_min_ps(_mm512_set1_ps(65504.0f), _mm512_max_ps(_mm512_set1_ps(-65504.0f), x));
  return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

__m512i Round(__m512 x, KvType type) {
  return type == KvType::kBf16 ? RoundToBf16(x) : RoundToF16(x);
}

// cos and sin of 8 pairs, each twice.
struct Rotation {
  __m512 cos;
  __m512 sin;
  __mmask16 rotating;  // Lanes; the others stay as they are.

  Rotation(const RopeRow& row, uint32_t dim) {
    rotating = LanesBelow(dim, row.rope_dims);
    const auto pairs = static_cast<__mmask8>(LanesBelow(dim / 2, row.rope_dims / 2));
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m256 c = _mm256_maskz_loadu_ps(pairs, row.cos + dim / 2);
    const __m256 s = _mm256_maskz_loadu_ps(pairs, row.sin + dim / 2);
    cos = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(c));
    sin = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(s));
  }

  __m512 Apply(__m512 x) const {
    const __m512 swapped = _mm512_permute_ps(x, 0xb1);
    return _mm512_mask_fmaddsub_ps(x, rotating, cos, _mm512_mul_ps(swapped, sin));
  }
};

// K stands with the token as the inner index, so the 16 dims from `dim` on go to 8 or 16 places.
void StoreK(const RopeRow& row, uint32_t head, uint32_t dim, __m512 k) {
  uint8_t* plane = row.k_plane + 2 * head * row.plane_bytes;
  const uint32_t dims = row.head_dim - dim < kLanes ? row.head_dim - dim : kLanes;
  alignas(64) uint32_t words[kLanes];
  if (row.type == KvType::kF32) {
    _mm512_store_si512(words, _mm512_castps_si512(k));
    for (uint32_t i = 0; i < dims; ++i) {
      std::memcpy(plane + (uint64_t{dim + i} * row.block_tokens + row.token) * 4, &words[i], 4);
    }
    return;
  }
  // A pair of dims of one token is one word.
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm512_cvtepi32_epi16(Round(k, row.type)));
  for (uint32_t i = 0; i < dims / 2; ++i) {
    std::memcpy(plane + (uint64_t{dim / 2 + i} * row.block_tokens + row.token) * 4, &words[i], 4);
  }
}

void StoreV(const RopeRow& row, uint32_t head, uint32_t dim) {
  uint8_t* plane = row.k_plane + (2 * head + 1) * row.plane_bytes;
  const __mmask16 lanes = LanesBelow(dim, row.head_dim);
  const __m512 v = _mm512_maskz_loadu_ps(lanes, row.v + head * row.head_dim + dim);
  if (row.type == KvType::kF32) {
    _mm512_mask_storeu_ps(plane + (uint64_t{row.token} * row.head_dim + dim) * 4, lanes, v);
    return;
  }
  // The other half of each word is the neighbour token's, which another thread may be writing: it must not be touched,
  // not even with the value it has.
  const __m512i halves = Round(v, row.type);
  const bool odd = row.token % 2 != 0;
  // The sign bits of halves that are ours.
  const __m512i signs = _mm512_maskz_set1_epi32(lanes, odd ? 0x80000000 : 0x00008000);
  _mm512_mask_storeu_epi16(plane + (uint64_t{row.token / 2} * row.head_dim + dim) * 4,
                           _mm512_movepi16_mask(signs), odd ? _mm512_slli_epi32(halves, 16) : halves);
}

}  // namespace

void RopeAppendRowAvx512(const RopeRow& row) {
  for (uint32_t dim = 0; dim < row.head_dim; dim += kLanes) {
    const Rotation rotation(row, dim);
    const __mmask16 lanes = LanesBelow(dim, row.head_dim);
    for (uint32_t head = 0; head < row.heads; ++head) {
      float* q = row.q + head * row.head_dim + dim;
      _mm512_mask_storeu_ps(q, lanes, rotation.Apply(_mm512_maskz_loadu_ps(lanes, q)));
    }
    for (uint32_t head = 0; head < row.kv_heads; ++head) {
      const float* k = row.k + head * row.head_dim + dim;
      StoreK(row, head, dim, rotation.Apply(_mm512_maskz_loadu_ps(lanes, k)));
      StoreV(row, head, dim);
    }
  }
}

}  // namespace baton::kernels
