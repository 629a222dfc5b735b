// Passes over a row of logits in blocks of 128, which is what makes sampling cheap: after one pass for the maximum of each
// block, top-k, logprobs and greedy decoding look only into the few blocks that can matter.
//
// Every pass gives the same bits on every CPU: lanes and their order of summation are fixed, only the width of the
// instructions differs. NaN counts as -infinity and +infinity as the largest finite float, so no logits can do harm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace baton::model {

inline constexpr size_t kLogitBlock = 128;

inline size_t LogitBlockCount(size_t logits) { return (logits + kLogitBlock - 1) / kLogitBlock; }

// maxima[b] = the largest logit of block b; -infinity if there is none.
// REQUIRES: maxima.size() == LogitBlockCount(logits.size()).
void BlockMaxima(absl::Span<const float> logits, absl::Span<float> maxima);

struct WeightRule {
  float maximum;      // The largest logit; finite. Its weight is 1.
  float temperature;  // > 0.
  float floor;        // Logits below it weigh 0.
  float weight_min;   // In [0, 1]; weights below it become 0.
};

// The weight of a logit is exp((logit - maximum) / temperature), or 0 by the rule. Writes the sum of each block's weights to
// `sums` (0 for a block whose maximum is below the floor) and, unless `weights` is empty, the weights of the other
// blocks to `weights`; `weights` may be `logits`. Sizes as above.
void BlockWeights(absl::Span<const float> logits, absl::Span<const float> maxima,
                  const WeightRule& rule, absl::Span<float> weights, absl::Span<float> sums);

// The sum of the weights that are at least `weight_min`, in blocks whose sum is not 0.
double MassFrom(absl::Span<const float> weights, absl::Span<const float> sums, float weight_min);

}  // namespace baton::model
