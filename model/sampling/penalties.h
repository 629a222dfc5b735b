// What changes logits before they become a distribution: bias and penalties, rebuilt from the history each time.
#pragma once

#include "absl/types/span.h"
#include "model/sampling/sampling.h"

namespace baton::model {

// In this order: the bias is added; logits of tokens of the prompt or output are divided by the repetition penalty if positive,
// multiplied by it if not; the frequency penalty is subtracted once for each time a token stands in the output, the
// presence penalty once if it does. REQUIRES: Validate(params) holds and every token of the history is inside the vocabulary.
void ApplyPenalties(absl::Span<float> logits, const SamplingParams& params,
                    const SamplingHistory& history);

}  // namespace baton::model
