// The bodies of logit_blocks.h, compiled once for each width of register by CMakeLists.txt. Plain pointers and no inline
// functions of other headers: the linker must not take a copy that was compiled for a wider CPU.
#pragma once

#include <cstddef>

namespace baton::model {

// exp((logit - maximum) * ln(2) * scale), with the rest of the rule as WeightRule.
struct LaneRule {
  float maximum;
  float scale;
  float floor;
  float weight_min;
};

#define BATON_DECLARE_LOGIT_LANES(width)                                                       \
  namespace register##width {                                                                  \
  /* logits [count], maxima [blocks] */                                                        \
  void BlockMaxima(const float* logits, size_t count, float* maxima);                          \
  /* logits [count], maxima [blocks], weights null or [count], sums [blocks] */                \
  void BlockWeights(const float* logits, size_t count, const float* maxima,                    \
                    const LaneRule& rule, float* weights, float* sums);                        \
  /* weights [count], sums [blocks] */                                                         \
  double MassFrom(const float* weights, size_t count, const float* sums, float weight_min);    \
  }
BATON_DECLARE_LOGIT_LANES(128)
BATON_DECLARE_LOGIT_LANES(256)
BATON_DECLARE_LOGIT_LANES(512)
#undef BATON_DECLARE_LOGIT_LANES

}  // namespace baton::model
