// The largest logits of a row, without sorting it. `maxima` is what BlockMaxima() (logit_blocks.h) gives for `logits`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace baton::model {

struct TokenLogit {
  uint32_t token;
  float logit;  // Not NaN; at most FLT_MAX.
};

// The `count` largest, best first, the lowest token first among equals; fewer if the others are NaN.
std::vector<TokenLogit> TopLogits(absl::Span<const float> logits, absl::Span<const float> maxima,
                                  size_t count);

// The k-th largest logit, so that exactly the k best tokens and those tied with the last of them are >= it.
// -infinity if there are fewer than k. REQUIRES: k >= 1.
float KthLargestLogit(absl::Span<const float> logits, absl::Span<const float> maxima, size_t k);

// The lowest token of the largest logit; 0 if all are NaN or -infinity. REQUIRES: !logits.empty().
uint32_t ArgMax(absl::Span<const float> logits, absl::Span<const float> maxima);

}  // namespace baton::model
