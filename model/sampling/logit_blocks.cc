#include "model/sampling/logit_blocks.h"

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace baton::model {
namespace {

// Compiled three times below, for 128, 256 and 512-bit registers.
#define BATON_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

constexpr float kInfinity = std::numeric_limits<float>::infinity();

BATON_INLINE void Load(const float* from, Floats& v) { std::memcpy(&v, from, sizeof(v)); }

// NaN stays NaN: every comparison with it is false, which the callers rely on.
BATON_INLINE void ClampToFinite(Floats& v) { v = v > FLT_MAX ? Floats{} + FLT_MAX : v; }

// x = 2^x for x <= 0 to about 1e-7 relative, 2^0 == 1 exactly; 0 below 2^-126 and for NaN.
BATON_INLINE void Exp2(Floats& x) {
  constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer.
  const Ints representable = x >= -126.0f;
  const Floats shifted = x + kRoundingMagic;
  const Floats fraction = x - (shifted - kRoundingMagic);  // In [-0.5, 0.5].
  // Taylor terms ln(2)^n / n!.
  Floats p = fraction * 1.5403530e-4f + 1.3333558e-3f;
  p = p * fraction + 9.6181291e-3f;
  p = p * fraction + 5.5504109e-2f;
  p = p * fraction + 2.4022651e-1f;
  p = p * fraction + 6.9314718e-1f;
  p = p * fraction + 1.0f;
  Ints exponent, bits;
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  std::memcpy(&bits, &p, sizeof(bits));
  bits = (bits + (exponent << 23)) & representable;
  std::memcpy(&x, &bits, sizeof(x));
}

BATON_INLINE float SumOfLanes(const Floats& v) {
  float lanes[kLanes];
  std::memcpy(lanes, &v, sizeof(lanes));
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

BATON_INLINE float MaxOfBlock(const float* logits) {
  Floats maximum = Floats{} - kInfinity;
  for (size_t i = 0; i < kLogitBlock; i += kLanes) {
    Floats v;
    Load(logits + i, v);
    ClampToFinite(v);
    maximum = v > maximum ? v : maximum;
  }
  float lanes[kLanes];
  std::memcpy(lanes, &maximum, sizeof(lanes));
  return *std::max_element(lanes, lanes + kLanes);
}

// `weights` may be null.
BATON_INLINE float WeighBlock(const float* logits, const WeightRule& rule, float scale,
                              float* weights) {
  Floats sum{};
  for (size_t i = 0; i < kLogitBlock; i += kLanes) {
    Floats v;
    Load(logits + i, v);
    ClampToFinite(v);
    const Ints above_floor = v >= rule.floor;
    v = (v - rule.maximum) * scale;
    Exp2(v);
    v = v >= rule.weight_min ? v : Floats{};
    v = above_floor ? v : Floats{};
    sum += v;
    if (weights != nullptr) std::memcpy(weights + i, &v, sizeof(v));
  }
  return SumOfLanes(sum);
}

// The last block of a row, filled up with logits that weigh nothing.
struct PaddedBlock {
  PaddedBlock(const float* logits, size_t count) {
    std::fill(std::copy(logits, logits + count, values), values + kLogitBlock, -kInfinity);
  }
  float values[kLogitBlock];
};

BATON_INLINE void BlockMaximaBody(absl::Span<const float> logits, float* maxima) {
  const size_t full = logits.size() / kLogitBlock;
  for (size_t b = 0; b < full; ++b) maxima[b] = MaxOfBlock(&logits[b * kLogitBlock]);
  if (const size_t left = logits.size() % kLogitBlock; left > 0) {
    const PaddedBlock last(&logits[full * kLogitBlock], left);
    maxima[full] = MaxOfBlock(last.values);
  }
}

BATON_INLINE void BlockWeightsBody(absl::Span<const float> logits, const float* maxima,
                                   const WeightRule& rule, float* weights, float* sums) {
  constexpr float kLog2OfE = 1.44269504f;
  const float scale = std::min(kLog2OfE / rule.temperature, FLT_MAX);
  const size_t full = logits.size() / kLogitBlock;
  for (size_t b = 0; b < full; ++b) {
    const size_t offset = b * kLogitBlock;
    sums[b] = maxima[b] < rule.floor
                  ? 0.0f
                  : WeighBlock(&logits[offset], rule, scale,
                               weights == nullptr ? nullptr : weights + offset);
  }
  const size_t left = logits.size() % kLogitBlock;
  if (left == 0) return;
  PaddedBlock last(&logits[full * kLogitBlock], left);
  sums[full] = WeighBlock(last.values, rule, scale, last.values);
  if (weights != nullptr) std::copy(last.values, last.values + left, weights + full * kLogitBlock);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void BlockMaxima512(
    absl::Span<const float> logits, float* maxima) {
  BlockMaximaBody(logits, maxima);
}
__attribute__((target("avx2"))) void BlockMaxima256(absl::Span<const float> logits,
                                                    float* maxima) {
  BlockMaximaBody(logits, maxima);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void BlockWeights512(
    absl::Span<const float> logits, const float* maxima, const WeightRule& rule, float* weights,
    float* sums) {
  BlockWeightsBody(logits, maxima, rule, weights, sums);
}
__attribute__((target("avx2"))) void BlockWeights256(absl::Span<const float> logits,
                                                     const float* maxima, const WeightRule& rule,
                                                     float* weights, float* sums) {
  BlockWeightsBody(logits, maxima, rule, weights, sums);
}

int RegisterBits() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return 512;
  }
  return __builtin_cpu_supports("avx2") ? 256 : 128;
}
#endif

}  // namespace

void BlockMaxima(absl::Span<const float> logits, absl::Span<float> maxima) {
  CHECK_EQ(maxima.size(), LogitBlockCount(logits.size()));
#if defined(__x86_64__)
  if (RegisterBits() == 512) return BlockMaxima512(logits, maxima.data());
  if (RegisterBits() == 256) return BlockMaxima256(logits, maxima.data());
#endif
  BlockMaximaBody(logits, maxima.data());
}

void BlockWeights(absl::Span<const float> logits, absl::Span<const float> maxima,
                  const WeightRule& rule, absl::Span<float> weights, absl::Span<float> sums) {
  CHECK_EQ(maxima.size(), LogitBlockCount(logits.size()));
  CHECK_EQ(sums.size(), maxima.size());
  CHECK(weights.empty() || weights.size() == logits.size());
  float* const out = weights.empty() ? nullptr : weights.data();
#if defined(__x86_64__)
  if (RegisterBits() == 512) {
    return BlockWeights512(logits, maxima.data(), rule, out, sums.data());
  }
  if (RegisterBits() == 256) {
    return BlockWeights256(logits, maxima.data(), rule, out, sums.data());
  }
#endif
  BlockWeightsBody(logits, maxima.data(), rule, out, sums.data());
}

}  // namespace baton::model
