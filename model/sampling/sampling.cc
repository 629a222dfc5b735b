#include "model/sampling/sampling.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "model/sampling/logit_blocks.h"
#include "model/sampling/penalties.h"
#include "model/sampling/philox.h"
#include "model/sampling/token_distribution.h"
#include "model/sampling/top_logits.h"

namespace baton::model {
namespace {

template <typename T>
absl::Status OutOfRange(absl::string_view field, T value, absl::string_view range) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be ", range));
}

absl::Status ValidateLogitBias(const SamplingParams& params, uint32_t vocabulary_size) {
  const auto& bias = params.logit_bias;
  if (bias.size() > kLogitBiasMax) {
    return OutOfRange("the size of logit_bias", bias.size(), absl::StrCat("at most ", kLogitBiasMax));
  }
  for (size_t i = 0; i < bias.size(); ++i) {
    const auto& [token, value] = bias[i];
    if (token >= vocabulary_size) {
      return OutOfRange("a token of logit_bias", token, absl::StrCat("below ", vocabulary_size));
    }
    if (!(value >= -100.0f && value <= 100.0f)) {
      return OutOfRange(absl::StrCat("logit_bias of token ", token), value, "in [-100, 100]");
    }
    if (i > 0 && token <= bias[i - 1].first) {
      return absl::InvalidArgumentError(
          absl::StrCat("logit_bias: token ", token, " is out of order or occurs twice"));
    }
  }
  return absl::OkStatus();
}

// One row of logits with the maxima of its blocks.
std::vector<float> MaximaOf(absl::Span<const float> logits) {
  std::vector<float> maxima(LogitBlockCount(logits.size()));
  BlockMaxima(logits, absl::MakeSpan(maxima));
  return maxima;
}

// log(sum(exp(logit))), as maximum + log(sum): summed in one fixed order.
struct LogNormalizer {
  double maximum;
  double log_sum;

  float LogprobOf(float logit) const {
    if (std::isnan(logit)) logit = -std::numeric_limits<float>::infinity();
    return static_cast<float>(std::min(logit, FLT_MAX) - maximum - log_sum);
  }
};

LogNormalizer Normalizer(absl::Span<const float> logits, absl::Span<const float> maxima) {
  const float maximum = *std::max_element(maxima.begin(), maxima.end());
  // No logit is above -infinity: then each has the log-probability -infinity.
  if (std::isinf(maximum)) return {.maximum = 0.0, .log_sum = 0.0};
  std::vector<float> sums(maxima.size());
  BlockWeights(logits, maxima,
               {.maximum = maximum,
                .temperature = 1.0f,
                .floor = -std::numeric_limits<float>::infinity(),
                .weight_min = 0.0f},
               /*weights=*/{}, absl::MakeSpan(sums));
  double sum = 0.0;
  for (const float block : sums) sum += block;
  return {.maximum = maximum, .log_sum = std::log(sum)};
}

uint32_t DrawToken(absl::Span<float> logits, const SamplingParams& params,
                   const SamplingHistory& history) {
  ApplyPenalties(logits, params, history);
  const std::vector<float> maxima = MaximaOf(logits);
  const bool nothing_to_draw =
      std::all_of(maxima.begin(), maxima.end(), [](float maximum) { return std::isinf(maximum); });
  if (params.temperature == 0.0f || nothing_to_draw) return ArgMax(logits, maxima);
  return TokenDistribution(logits, maxima, params)
      .Draw(UniformAt(params.seed, params.sample_index, history.tokens.size()));
}

}  // namespace

absl::Status Validate(const SamplingParams& params, uint32_t vocabulary_size) {
  if (!(params.temperature >= 0.0f && std::isfinite(params.temperature))) {
    return OutOfRange("temperature", params.temperature, "finite and >= 0");
  }
  if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
    return OutOfRange("top_p", params.top_p, "in (0, 1]");
  }
  if (!(params.min_p >= 0.0f && params.min_p <= 1.0f)) {
    return OutOfRange("min_p", params.min_p, "in [0, 1]");
  }
  if (!(params.repetition_penalty > 0.0f && std::isfinite(params.repetition_penalty))) {
    return OutOfRange("repetition_penalty", params.repetition_penalty, "finite and > 0");
  }
  if (!(params.presence_penalty >= -2.0f && params.presence_penalty <= 2.0f)) {
    return OutOfRange("presence_penalty", params.presence_penalty, "in [-2, 2]");
  }
  if (!(params.frequency_penalty >= -2.0f && params.frequency_penalty <= 2.0f)) {
    return OutOfRange("frequency_penalty", params.frequency_penalty, "in [-2, 2]");
  }
  if (params.logprobs.has_value() && *params.logprobs > kLogprobsMax) {
    return OutOfRange("logprobs", *params.logprobs, absl::StrCat("in [0, ", kLogprobsMax, "]"));
  }
  return ValidateLogitBias(params, vocabulary_size);
}

SampledToken Sample(absl::Span<float> logits, const SamplingParams& params,
                    const SamplingHistory& history) {
  CHECK(!logits.empty());
  if (!params.logprobs.has_value()) {
    return {.token = DrawToken(logits, params, history), .logprobs = std::nullopt};
  }
  // Log-probabilities are the model's own, of the logits before anything was done to them.
  const std::vector<float> original(logits.begin(), logits.end());
  const uint32_t token = DrawToken(logits, params, history);
  return {.token = token, .logprobs = LogprobsOf(original, token, *params.logprobs)};
}

PositionLogprobs LogprobsOf(absl::Span<const float> logits, std::optional<uint32_t> chosen,
                            uint32_t top_count) {
  CHECK(!logits.empty());
  const std::vector<float> maxima = MaximaOf(logits);
  const LogNormalizer normalizer = Normalizer(logits, maxima);
  PositionLogprobs result;
  if (chosen.has_value()) {
    CHECK_LT(*chosen, logits.size());
    result.chosen = {.token = *chosen, .logprob = normalizer.LogprobOf(logits[*chosen])};
  }
  for (const TokenLogit& top : TopLogits(logits, maxima, top_count)) {
    result.top.push_back({.token = top.token, .logprob = normalizer.LogprobOf(top.logit)});
  }
  return result;
}

}  // namespace baton::model
