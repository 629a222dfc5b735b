#include "model/sampling/logit_lanes.h"

#include <cfloat>
#include <cstdint>
#include <cstring>

#ifndef BATON_REGISTER_NAMESPACE
#error "CMakeLists.txt names the width of register that this is compiled for"
#endif

namespace baton::model::BATON_REGISTER_NAMESPACE {
namespace {

constexpr size_t kBlock = 128;
constexpr size_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Uints = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));

constexpr float kInfinity = __builtin_inff();

// NaN stays NaN: every comparison with it is false, which the callers rely on.
inline Floats LoadFinite(const float* from) {
  Floats v;
  std::memcpy(&v, from, sizeof(v));
  return v > FLT_MAX ? Floats{} + FLT_MAX : v;
}

// 2^x for x <= 0 to about 1e-7 relative, 2^0 == 1 exactly; 0 below 2^-126 and for NaN.
inline Floats Exp2(Floats x) {
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
  // The integer in the low bits of `shifted` is added to the exponent. Unsigned: what is not representable may wrap.
  const Uints bits = reinterpret_cast<Uints>(p) + (reinterpret_cast<Uints>(shifted) << 23);
  return reinterpret_cast<Floats>(bits & reinterpret_cast<Uints>(representable));
}

inline float MaxOfBlock(const float* logits) {
  Floats maximum = Floats{} - kInfinity;
  for (size_t i = 0; i < kBlock; i += kLanes) {
    const Floats v = LoadFinite(logits + i);
    maximum = v > maximum ? v : maximum;
  }
  float result = maximum[0];
  for (size_t i = 1; i < kLanes; ++i) result = maximum[i] > result ? maximum[i] : result;
  return result;
}

inline float SumOfLanes(const Floats& v) {
  float lanes[kLanes];
  std::memcpy(lanes, &v, sizeof(lanes));
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// `weights` may be null.
inline float WeighBlock(const float* logits, const LaneRule& rule, float* weights) {
  Floats sum{};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    const Floats logit = LoadFinite(logits + i);
    Floats weight = Exp2((logit - rule.maximum) * rule.scale);
    weight = logit >= rule.floor ? weight : Floats{};
    weight = weight >= rule.weight_min ? weight : Floats{};
    sum += weight;
    if (weights != nullptr) std::memcpy(weights + i, &weight, sizeof(weight));
  }
  return SumOfLanes(sum);
}

inline float BlockMassFrom(const float* weights, float weight_min) {
  Floats sum{};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    Floats weight;
    std::memcpy(&weight, weights + i, sizeof(weight));
    sum += weight >= weight_min ? weight : Floats{};
  }
  return SumOfLanes(sum);
}

// The last block of a row, filled up with logits or weights that weigh nothing.
struct PaddedBlock {
  PaddedBlock(const float* from, size_t count, float weightless) {
    for (size_t i = 0; i < kBlock; ++i) values[i] = i < count ? from[i] : weightless;
  }
  float values[kBlock];
};

}  // namespace

void BlockMaxima(const float* logits, size_t count, float* maxima) {
  const size_t full = count / kBlock;
  for (size_t b = 0; b < full; ++b) maxima[b] = MaxOfBlock(logits + b * kBlock);
  if (const size_t left = count % kBlock; left > 0) {
    maxima[full] = MaxOfBlock(PaddedBlock(logits + full * kBlock, left, -kInfinity).values);
  }
}

void BlockWeights(const float* logits, size_t count, const float* maxima, const LaneRule& rule,
                  float* weights, float* sums) {
  const size_t full = count / kBlock;
  for (size_t b = 0; b < full; ++b) {
    const size_t offset = b * kBlock;
    const bool weightless = maxima[b] < rule.floor;
    sums[b] = weightless ? 0.0f
                         : WeighBlock(logits + offset, rule,
                                      weights == nullptr ? nullptr : weights + offset);
  }
  if (const size_t left = count % kBlock; left > 0) {
    PaddedBlock last(logits + full * kBlock, left, -kInfinity);
    sums[full] = WeighBlock(last.values, rule, last.values);
    if (weights != nullptr) std::memcpy(weights + full * kBlock, last.values, left * sizeof(float));
  }
}

double MassFrom(const float* weights, size_t count, const float* sums, float weight_min) {
  const size_t full = count / kBlock;
  double mass = 0.0;
  for (size_t b = 0; b < full; ++b) {
    if (sums[b] != 0.0f) mass += BlockMassFrom(weights + b * kBlock, weight_min);
  }
  if (const size_t left = count % kBlock; left > 0 && sums[full] != 0.0f) {
    mass += BlockMassFrom(PaddedBlock(weights + full * kBlock, left, 0.0f).values, weight_min);
  }
  return mass;
}

}  // namespace baton::model::BATON_REGISTER_NAMESPACE
