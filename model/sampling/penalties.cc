#include "model/sampling/penalties.h"

#include <vector>

#include "base/check.h"

namespace baton::model {
namespace {

// Which tokens were met already: one bit a token.
class TokenSet {
 public:
  explicit TokenSet(size_t vocabulary_size) : met_(vocabulary_size, false) {}
  // False if `token` was in the set before.
  bool Insert(uint32_t token) {
    CHECK_LT(token, met_.size());
    if (met_[token]) return false;
    met_[token] = true;
    return true;
  }

 private:
  std::vector<bool> met_;
};

void ApplyRepetitionPenalty(absl::Span<float> logits, float penalty,
                            absl::Span<const uint32_t> tokens) {
  TokenSet met(logits.size());
  for (const uint32_t token : tokens) {
    if (!met.Insert(token)) continue;
    float& logit = logits[token];
    logit = logit > 0.0f ? logit / penalty : logit * penalty;
  }
}

void ApplyOutputPenalties(absl::Span<float> logits, float frequency, float presence,
                          absl::Span<const uint32_t> output) {
  TokenSet met(logits.size());
  for (const uint32_t token : output) {
    if (met.Insert(token)) logits[token] -= presence;
    logits[token] -= frequency;
  }
}

}  // namespace

void ApplyPenalties(absl::Span<float> logits, const SamplingParams& params,
                    const SamplingHistory& history) {
  for (const auto& [token, bias] : params.logit_bias) {
    CHECK_LT(token, logits.size());
    logits[token] += bias;
  }
  if (params.repetition_penalty != 1.0f) {
    ApplyRepetitionPenalty(logits, params.repetition_penalty, history.tokens);
  }
  if (params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f) {
    ApplyOutputPenalties(logits, params.frequency_penalty, params.presence_penalty,
                         history.tokens.subspan(history.output_start));
  }
}

}  // namespace baton::model
