// f32 math for every KV type; 16-bit types are widened in registers.
#include "kernels/attention/attention_tile_avx512.h"

namespace baton::kernels {
namespace {

void PackQuery(const float* q, uint32_t head_dim, float scale, uint8_t* packed) {
  auto* out = reinterpret_cast<float*>(packed);
  for (uint32_t dim = 0; dim < head_dim; dim += kLanes) {
    const __mmask16 lanes = LanesBelow(dim, head_dim);
    const __m512 scaled =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, q + dim), _mm512_set1_ps(scale));
    _mm512_mask_storeu_ps(out + dim, lanes, scaled);
  }
}

template <class Kv>
constexpr AttentionKernel kKernel = {.query_bytes = sizeof(float),
                                     .pack_query = PackQuery,
                                     .attend = Attend<Kv>,
                                     .merge = Merge,
                                     .finish = Finish};

}  // namespace

const AttentionKernel& AttentionKernelAvx512(KvType type) {
  switch (type) {
    case KvType::kF32: return kKernel<F32Kv>;
    case KvType::kF16: return kKernel<WideF16Kv>;
    case KvType::kBf16: break;
  }
  return kKernel<WideBf16Kv>;
}

}  // namespace baton::kernels
