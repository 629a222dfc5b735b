#include "model/sampling/logit_blocks.h"

#include <algorithm>
#include <cfloat>

#include "base/check.h"
#include "model/sampling/logit_lanes.h"

namespace baton::model {
namespace {

struct Lanes {
  decltype(&register128::BlockMaxima) block_maxima;
  decltype(&register128::BlockWeights) block_weights;
  decltype(&register128::MassFrom) mass_from;
};

Lanes WidestLanes() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return {register512::BlockMaxima, register512::BlockWeights, register512::MassFrom};
  }
  if (__builtin_cpu_supports("avx2")) return {register256::BlockMaxima, register256::BlockWeights, register256::MassFrom};
#endif
  return {register128::BlockMaxima, register128::BlockWeights, register128::MassFrom};
}

}  // namespace

void BlockMaxima(absl::Span<const float> logits, absl::Span<float> maxima) {
  CHECK_EQ(maxima.size(), LogitBlockCount(logits.size()));
  WidestLanes().block_maxima(logits.data(), logits.size(), maxima.data());
}

void BlockWeights(absl::Span<const float> logits, absl::Span<const float> maxima,
                  const WeightRule& rule, absl::Span<float> weights, absl::Span<float> sums) {
  constexpr float kLog2OfE = 1.44269504f;
  CHECK_EQ(maxima.size(), LogitBlockCount(logits.size()));
  CHECK_EQ(sums.size(), maxima.size());
  CHECK(weights.empty() || weights.size() == logits.size());
  const LaneRule lane_rule = {.maximum = rule.maximum,
                              .scale = std::min(kLog2OfE / rule.temperature, FLT_MAX),
                              .floor = rule.floor,
                              .weight_min = rule.weight_min};
  WidestLanes().block_weights(logits.data(), logits.size(), maxima.data(), lane_rule,
                              weights.empty() ? nullptr : weights.data(), sums.data());
}

double MassFrom(absl::Span<const float> weights, absl::Span<const float> sums, float weight_min) {
  CHECK_EQ(sums.size(), LogitBlockCount(weights.size()));
  return WidestLanes().mass_from(weights.data(), weights.size(), sums.data(), weight_min);
}

}  // namespace baton::model
