// bf16 KV as it is, against queries and weights rounded to bf16: vdpbf16ps multiplies two pairs a lane.
#include "kernels/attention/attention_tile_avx512.h"

namespace baton::kernels {
namespace {

struct DotBf16Kv {
  using Factor = uint16_t;
  static constexpr uint32_t kSteps = 1, kHalves = 1, kVectors = 4, kPairBytes = 4;
  static constexpr bool kPrefetch = false;  // Zen 4, which this level is for, lost 17 % by it.

  template <bool kSplit>
  static __m512 Operand(const uint8_t* low, const uint8_t* high, uint32_t, uint64_t) {
    return _mm512_castsi512_ps(LoadHalves<kSplit>(low, high));
  }
  static __m512 Factors(const uint16_t* row, uint32_t pair, uint32_t) {
    int32_t both;
    std::memcpy(&both, row + 2 * pair, sizeof(both));
    return _mm512_castsi512_ps(_mm512_set1_epi32(both));
  }
  static __m512 MultiplyAdd(__m512 a, __m512 b, __m512 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static __m512 Join(const __m512* halves) { return halves[0]; }
  static void StoreWeights(uint16_t* weights, __m512 first, __m512 second) {
    _mm512_store_si512(weights, (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
};

void PackQuery(const float* q, uint32_t head_dim, float scale, uint8_t* packed) {
  auto* out = reinterpret_cast<uint16_t*>(packed);
  for (uint32_t dim = 0; dim < head_dim; dim += kLanes) {
    const __mmask16 lanes = LanesBelow(dim, head_dim);
    const __m512 scaled =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, q + dim), _mm512_set1_ps(scale));
    _mm256_mask_storeu_epi16(out + dim, lanes, (__m256i)_mm512_cvtneps_pbh(scaled));
  }
}

constexpr AttentionKernel kKernel = {.query_bytes = sizeof(uint16_t),
                                     .pack_query = PackQuery,
                                     .attend = Attend<DotBf16Kv>,
                                     .merge = Merge,
                                     .finish = Finish};

}  // namespace

const AttentionKernel& AttentionKernelAvx512Bf16() { return kKernel; }

}  // namespace baton::kernels
