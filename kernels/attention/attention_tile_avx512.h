// The tile of attention in 512-bit registers, for every KV type by a policy. Included only by files that are compiled for
// AVX-512; everything is in an unnamed namespace and nothing inline is taken from other headers, so that no code for
// this CPU can end up in another file.
//
//   scores    S[rows][keys]   sum over pairs of dims     K  [dims / 2][16 keys][2]
//   softmax   P[rows][keys]   and maxima, sums
//   values    O[rows][dims]   sum over pairs of keys     V  [keys / 2][dims][2]
//
// Both products have one shape: 16 lanes of a pair of operands, against a pair of broadcast factors of each row. The three
// steps are functions of their own: in one body GCC spills the accumulators.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/attention/attention_kernel.h"

namespace baton::kernels {
namespace {

#define BATON_UNROLL _Pragma("GCC unroll 16")

constexpr uint32_t kLanes = 16;
constexpr uint32_t kVectorBytes = 64;

// ---- Policies: how a KV type is multiplied.
//
// kSteps      products that a pair takes
// kHalves     accumulators that 16 lanes are spread over
// kVectors    of 16 lanes that a tile of kTileRows rows holds in registers
// kPairBytes  bytes of a pair of one lane
// kPrefetch   whether to ask for the next keys or values while these are multiplied: blocks are pieces too short for the
//             CPU to do so by itself. On Emerald Rapids a decode batch gains 30 to 50 % by it, a prefill 1 to 2 %.
// Operand(low, high, step, row_bytes)
//             the vector of a step; its second half (lanes 8 ..) is at `high` if kSplit, else it follows the first
// Factor      what a packed query or weight consists of
// Factors(row, pair, step)
//             the factors of a row for a step, spread over the lanes
// Join(halves)
//             16 results from the accumulators
// StoreWeights(weights, first, second)
//             32 weights as factors

template <bool kSplit>
__m512i LoadHalves(const uint8_t* low, const uint8_t* high) {
  if constexpr (!kSplit) return _mm512_loadu_si512(low);
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low));
  const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high));
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// f32: the operands of a pair stand one row apart.
struct F32Kv {
  using Factor = float;
  static constexpr uint32_t kSteps = 2, kHalves = 1, kVectors = 4, kPairBytes = 8;
  static constexpr bool kPrefetch = true;

  template <bool kSplit>
  static __m512 Operand(const uint8_t* low, const uint8_t* high, uint32_t step, uint64_t row_bytes) {
    return _mm512_castsi512_ps(LoadHalves<kSplit>(low + step * row_bytes, high + step * row_bytes));
  }
  static __m512 Factors(const float* row, uint32_t pair, uint32_t step) {
    return _mm512_set1_ps(row[2 * pair + step]);
  }
  static __m512 MultiplyAdd(__m512 a, __m512 b, __m512 sum) { return _mm512_fmadd_ps(a, b, sum); }
  static __m512 Join(const __m512* halves) { return halves[0]; }
  static void StoreWeights(float* weights, __m512 first, __m512 second) {
    _mm512_store_ps(weights, first);
    _mm512_store_ps(weights + kLanes, second);
  }
};

// bf16 widened: the first of a pair is the low half of a 32-bit lane, the second the high half.
struct WideBf16Kv : F32Kv {
  static constexpr uint32_t kPairBytes = 4;

  template <bool kSplit>
  static __m512 Operand(const uint8_t* low, const uint8_t* high, uint32_t step, uint64_t) {
    const __m512i pairs = LoadHalves<kSplit>(low, high);
    return _mm512_castsi512_ps(step == 0
                                   ? _mm512_slli_epi32(pairs, 16)
                                   : _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff0000)));
  }
};

// f16 widened: there is no cheap way to part a pair, so lanes 0 .. 7 of pairs become one vector of 16 products, lanes 8 .. 15
// another, and neighbours are added at the end.
struct WideF16Kv : F32Kv {
  static constexpr uint32_t kHalves = 2, kVectors = 2, kPairBytes = 4;

  template <bool kSplit>
  static __m512 Operand(const uint8_t* low, const uint8_t* high, uint32_t step, uint64_t) {
    const uint8_t* half = step == 0 ? low : kSplit ? high : low + kVectorBytes / 2;
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(half)));
  }
  static __m512 Factors(const float* row, uint32_t pair, uint32_t) {
    double both;
    std::memcpy(&both, row + 2 * pair, sizeof(both));
    return _mm512_castpd_ps(_mm512_set1_pd(both));
  }
  static __m512 Join(const __m512* halves) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return _mm512_add_ps(_mm512_permutex2var_ps(halves[0], even, halves[1]),
                         _mm512_permutex2var_ps(halves[0], odd, halves[1]));
  }
};

// ---- Scores

// K of 16 keys each: at `low` those of the first 8, at `high` of the others.
struct KeyVectors {
  const uint8_t* low[4];
  const uint8_t* high[4];
  const uint8_t* next[4];  // What is read after them.
};

// queries [kRows][head_dim], scores [kRows][kChunkKeys]; kCount vectors of 16 keys.
template <class Kv, uint32_t kRows, uint32_t kCount, bool kSplit>
__attribute__((noinline)) void Scores(const typename Kv::Factor* queries, const KeyChunk& keys,
                                      const KeyVectors& vectors, float* scores) {
  __m512 sums[kRows][kCount][Kv::kHalves];
  BATON_UNROLL for (uint32_t r = 0; r < kRows; ++r) {
    BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
      BATON_UNROLL for (uint32_t h = 0; h < Kv::kHalves; ++h) sums[r][i][h] = _mm512_setzero_ps();
    }
  }
  const uint32_t dims = keys.head_dim;
  const uint64_t pair_stride = uint64_t{keys.block_tokens} * Kv::kPairBytes;
  uint64_t offset = 0;
  for (uint32_t pair = 0; pair < dims / 2; ++pair, offset += pair_stride) {
    BATON_UNROLL for (uint32_t step = 0; step < Kv::kSteps; ++step) {
      __m512 k[kCount];
      BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
        k[i] = Kv::template Operand<kSplit>(vectors.low[i] + offset, vectors.high[i] + offset, step,
                                            pair_stride / 2);
        if (Kv::kPrefetch && step == 0) _mm_prefetch(vectors.next[i] + offset, _MM_HINT_T0);
      }
      BATON_UNROLL for (uint32_t r = 0; r < kRows; ++r) {
        const __m512 q = Kv::Factors(queries + r * dims, pair, step);
        BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
          __m512& sum = sums[r][i][step % Kv::kHalves];
          sum = Kv::MultiplyAdd(k[i], q, sum);
        }
      }
    }
  }
  BATON_UNROLL for (uint32_t r = 0; r < kRows; ++r) {
    BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
      _mm512_store_ps(scores + r * kChunkKeys + i * kLanes, Kv::Join(sums[r][i]));
    }
  }
}

// K of the `count` vectors of 16 keys from `first_key` on.
template <class Kv, bool kSplit>
KeyVectors LocateKeys(const KeyChunk& keys, uint32_t first_key, uint32_t count, uint32_t key_count) {
  constexpr uint32_t kLaneBytes = Kv::kPairBytes == 8 ? 4 : Kv::kPairBytes;
  KeyVectors vectors = {};
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t key = first_key + i * kLanes;
    const uint32_t block = key / keys.block_tokens;
    vectors.low[i] = keys.k_planes[block] + key % keys.block_tokens * kLaneBytes;
    // Nothing is seen of the second half if its block is not there: any finite values will do.
    const bool second_block = kSplit && key + kLanes / 2 < key_count;
    vectors.high[i] = second_block ? keys.k_planes[block + 1] : vectors.low[i];
    // The keys that follow, or the first values.
    const bool last = key + count * kLanes >= key_count;
    const uint32_t next = last ? i * kLanes : key + count * kLanes;
    vectors.next[i] = keys.k_planes[next < key_count ? next / keys.block_tokens : 0] +
                      next % keys.block_tokens * kLaneBytes + (last ? keys.plane_bytes : 0);
  }
  return vectors;
}

template <class Kv, uint32_t kRows, bool kSplit>
void AllScores(const typename Kv::Factor* queries, const KeyChunk& keys, uint32_t key_count,
               float* scores) {
  constexpr uint32_t kMany = Kv::kVectors;
  uint32_t key = 0;
  for (; key + (kMany - 1) * kLanes < key_count; key += kMany * kLanes) {
    Scores<Kv, kRows, kMany, kSplit>(
        queries, keys, LocateKeys<Kv, kSplit>(keys, key, kMany, key_count), scores + key);
  }
  for (; key < key_count; key += kLanes) {
    Scores<Kv, kRows, 1, kSplit>(queries, keys, LocateKeys<Kv, kSplit>(keys, key, 1, key_count),
                                 scores + key);
  }
}

// ---- Softmax

// 2^x to 2e-7 relative; 2^0 == 1 exactly.
__m512 Exp2(__m512 x) {
  const __m512 rounded = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, rounded);  // In [-0.5, 0.5].
  __m512 p = _mm512_set1_ps(1.32647261e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.67151299e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55073358e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40222424e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147004e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, rounded);
}

float Exp2(float x) { return _mm512_cvtss_f32(Exp2(_mm512_set1_ps(x))); }

__mmask16 LanesBelow(uint32_t first, uint32_t end) {
  if (end <= first) return 0;
  return end - first >= kLanes ? 0xffff : static_cast<__mmask16>((1u << (end - first)) - 1);
}

float SumOfLanes(__m512 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

float MaximumOf(const float* scores, uint32_t visible) {
  __m512 first = _mm512_set1_ps(-__builtin_inff());
  __m512 second = first;
  for (uint32_t key = 0; key < visible; key += 2 * kLanes) {
    first = _mm512_mask_max_ps(first, LanesBelow(key, visible), first, _mm512_load_ps(scores + key));
    second = _mm512_mask_max_ps(second, LanesBelow(key + kLanes, visible), second,
                                _mm512_load_ps(scores + key + kLanes));
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(first, second));
}

// Turns a row's scores into weights 2^(score - maximum), 0 from `visible` to `key_count` rounded up to 32 keys. Returns the
// sum of the weights.
template <class Kv>
__attribute__((noinline)) float Softmax(const float* scores, float maximum, uint32_t visible,
                                        uint32_t key_count, typename Kv::Factor* weights) {
  const __m512 maxima = _mm512_set1_ps(maximum);
  __m512 first_sum = _mm512_setzero_ps();
  __m512 second_sum = first_sum;
  uint32_t key = 0;
  for (; key < visible; key += 2 * kLanes) {
    __m512 first = Exp2(_mm512_sub_ps(_mm512_load_ps(scores + key), maxima));
    __m512 second = Exp2(_mm512_sub_ps(_mm512_load_ps(scores + key + kLanes), maxima));
    if (key + 2 * kLanes > visible) {
      first = _mm512_maskz_mov_ps(LanesBelow(key, visible), first);
      second = _mm512_maskz_mov_ps(LanesBelow(key + kLanes, visible), second);
    }
    first_sum = _mm512_add_ps(first_sum, first);
    second_sum = _mm512_add_ps(second_sum, second);
    Kv::StoreWeights(weights + key, first, second);
  }
  for (; key < key_count; key += 2 * kLanes) {
    Kv::StoreWeights(weights + key, _mm512_setzero_ps(), _mm512_setzero_ps());
  }
  return SumOfLanes(_mm512_add_ps(first_sum, second_sum));
}

// ---- Values

// The operand of dims that end within a vector: reads no further.
template <class Kv>
__m512 MaskedOperand(const uint8_t* v, uint32_t step, uint64_t row_bytes, __mmask16 lanes) {
  constexpr bool kRowsApart = Kv::kPairBytes == 8;
  if (kRowsApart) v += step * row_bytes;
  alignas(64) uint8_t padded[kVectorBytes];
  _mm512_store_si512(padded, _mm512_maskz_loadu_epi32(lanes, v));
  return Kv::template Operand<false>(padded, padded, kRowsApart ? 0 : step, 0);
}

// sums [kRows][sums_stride] = weights [kRows][kChunkKeys] * V, for kCount vectors of 16 dims from dims `first_dim` on; if
// kMasked, only `lanes` of the (one) vector exist.
template <class Kv, uint32_t kRows, uint32_t kCount, bool kMasked>
__attribute__((noinline)) void Values(const typename Kv::Factor* weights, const KeyChunk& keys,
                                      uint32_t key_count, uint32_t first_dim, __mmask16 lanes,
                                      uint32_t sums_stride, float* sums_out) {
  __m512 sums[kRows][kCount][Kv::kHalves];
  BATON_UNROLL for (uint32_t r = 0; r < kRows; ++r) {
    BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
      BATON_UNROLL for (uint32_t h = 0; h < Kv::kHalves; ++h) sums[r][i][h] = _mm512_setzero_ps();
    }
  }
  constexpr uint32_t kLaneBytes = Kv::kPairBytes == 8 ? 4 : Kv::kPairBytes;
  const uint64_t pair_stride = uint64_t{keys.head_dim} * Kv::kPairBytes;
  const uint32_t pairs_left = (key_count + 1) / 2;
  for (uint32_t pair = 0; pair < pairs_left;) {
    const uint8_t* v = keys.k_planes[2 * pair / keys.block_tokens] + keys.plane_bytes +
                       uint64_t{first_dim} * kLaneBytes;
    const uint32_t block_end = pair + keys.block_tokens / 2;
    const uint32_t end = block_end < pairs_left ? block_end : pairs_left;
    const uint8_t* next = v;
    if (end < pairs_left) {
      next = keys.k_planes[2 * end / keys.block_tokens] + keys.plane_bytes + uint64_t{first_dim} * kLaneBytes;
    }
    for (; pair < end; ++pair, v += pair_stride, next += pair_stride) {
      BATON_UNROLL for (uint32_t step = 0; step < Kv::kSteps; ++step) {
        __m512 operands[kCount];
        BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
          if constexpr (kMasked) {
            operands[i] = MaskedOperand<Kv>(v, step, pair_stride / 2, lanes);
          } else {
            const uint8_t* at = v + i * kVectorBytes;
            operands[i] = Kv::template Operand<false>(at, at, step, pair_stride / 2);
          }
          if (Kv::kPrefetch && step == 0) _mm_prefetch(next + i * kVectorBytes, _MM_HINT_T0);
        }
        BATON_UNROLL for (uint32_t r = 0; r < kRows; ++r) {
          const __m512 weight = Kv::Factors(weights + r * kChunkKeys, pair, step);
          BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
            __m512& sum = sums[r][i][step % Kv::kHalves];
            sum = Kv::MultiplyAdd(operands[i], weight, sum);
          }
        }
      }
    }
  }
  BATON_UNROLL for (uint32_t r = 0; r < kRows; ++r) {
    BATON_UNROLL for (uint32_t i = 0; i < kCount; ++i) {
      _mm512_store_ps(sums_out + r * sums_stride + i * kLanes, Kv::Join(sums[r][i]));
    }
  }
}

template <class Kv, uint32_t kRows>
void AllValues(const typename Kv::Factor* weights, const KeyChunk& keys, uint32_t key_count,
               uint32_t sums_stride, float* sums) {
  constexpr uint32_t kMany = Kv::kVectors;
  uint32_t dim = 0;
  for (; dim + kMany * kLanes <= keys.head_dim; dim += kMany * kLanes) {
    Values<Kv, kRows, kMany, false>(weights, keys, key_count, dim, 0xffff, sums_stride, sums + dim);
  }
  for (; dim + kLanes <= keys.head_dim; dim += kLanes) {
    Values<Kv, kRows, 1, false>(weights, keys, key_count, dim, 0xffff, sums_stride, sums + dim);
  }
  if (dim < keys.head_dim) {
    Values<Kv, kRows, 1, true>(weights, keys, key_count, dim, LanesBelow(dim, keys.head_dim),
                               sums_stride, sums + dim);
  }
}

// ---- The kernel

template <class Kv, uint32_t kRows>
void AttendRows(const KeyChunk& keys, const QueryTile& tile, uint8_t* scratch, float* partials) {
  using Factor = typename Kv::Factor;
  const auto* queries = reinterpret_cast<const Factor*>(tile.queries);
  auto* scores = reinterpret_cast<float*>(scratch);
  // f32 weights replace their scores.
  constexpr size_t kWeightsOffset =
      sizeof(Factor) == sizeof(float) ? 0 : kTileRows * kChunkKeys * sizeof(float);
  auto* weights = reinterpret_cast<Factor*>(scratch + kWeightsOffset);
  const uint32_t key_count = tile.visible[kRows - 1];
  const uint32_t stride = PartialFloats(keys.head_dim);

  if (keys.block_tokens < kLanes) {
    AllScores<Kv, kRows, true>(queries, keys, key_count, scores);
  } else {
    AllScores<Kv, kRows, false>(queries, keys, key_count, scores);
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    const float* row = scores + r * kChunkKeys;
    const float maximum = MaximumOf(row, tile.visible[r]);
    const float total =
        Softmax<Kv>(row, maximum, tile.visible[r], key_count, weights + r * kChunkKeys);
    float* tail = partials + (r + 1) * stride - kPartialTail;
    tail[0] = maximum;
    tail[1] = total;
  }
  AllValues<Kv, kRows>(weights, keys, key_count, stride, partials);
}

template <class Kv>
void Attend(const KeyChunk& keys, const QueryTile& tile, uint8_t* scratch, float* partials) {
  static_assert(kTileRows == 6);
  switch (tile.rows) {
    case 1: return AttendRows<Kv, 1>(keys, tile, scratch, partials);
    case 2: return AttendRows<Kv, 2>(keys, tile, scratch, partials);
    case 3: return AttendRows<Kv, 3>(keys, tile, scratch, partials);
    case 4: return AttendRows<Kv, 4>(keys, tile, scratch, partials);
    case 5: return AttendRows<Kv, 5>(keys, tile, scratch, partials);
    case 6: return AttendRows<Kv, 6>(keys, tile, scratch, partials);
  }
}

void Merge(const float* partial, uint32_t head_dim, float* state) {
  const uint32_t sums = PartialFloats(head_dim) - kPartialTail;
  const float maximum = partial[sums] > state[sums] ? partial[sums] : state[sums];
  const float old_scale = Exp2(state[sums] - maximum);
  const float new_scale = Exp2(partial[sums] - maximum);
  for (uint32_t dim = 0; dim < sums; dim += kLanes) {
    const __m512 kept = _mm512_mul_ps(_mm512_load_ps(state + dim), _mm512_set1_ps(old_scale));
    _mm512_store_ps(state + dim, _mm512_fmadd_ps(_mm512_load_ps(partial + dim),
                                                 _mm512_set1_ps(new_scale), kept));
  }
  state[sums] = maximum;
  state[sums + 1] = state[sums + 1] * old_scale + partial[sums + 1] * new_scale;
}

void Finish(const float* state, uint32_t head_dim, float* out) {
  const __m512 total = _mm512_set1_ps(state[PartialFloats(head_dim) - kPartialTail + 1]);
  for (uint32_t dim = 0; dim < head_dim; dim += kLanes) {
    _mm512_mask_storeu_ps(out + dim, LanesBelow(dim, head_dim),
                          _mm512_div_ps(_mm512_load_ps(state + dim), total));
  }
}

}  // namespace
}  // namespace baton::kernels
