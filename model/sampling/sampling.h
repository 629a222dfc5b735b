// Draws a token from one row of logits. Pure: the same arguments give the same token on every worker.
//
// Order: logit bias, repetition penalty, frequency and presence penalties, temperature, min-p, top-k, top-p, draw.
// The draw is counter-based: its random number depends on (seed, sample index, output position's absolute position in the
// sequence) only, so preemption, migration and batching never change it. No state is kept: penalties are rebuilt from
// the history each time (see SamplingHistory).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace baton::model {

struct SamplingParams {
  float temperature = 0.0f;         // >= 0; 0: greedy, the lowest id on a tie.
  uint32_t top_k = 0;               // 0: off.
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  std::vector<std::pair<uint32_t, float>> logit_bias;  // Sorted by id, ids distinct; values [-100, 100].
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  std::optional<uint32_t> logprobs;  // Alternatives to report, [0, 20].
};

inline constexpr uint32_t kLogprobsMax = 20;
inline constexpr uint32_t kLogitBiasMax = 1024;

// INVALID_ARGUMENT, naming field, value and legal range, with the field names of protos/baton/v1/types.proto.
absl::Status Validate(const SamplingParams& params, uint32_t vocabulary_size);

struct TokenLogprob {
  uint32_t token = 0;
  float logprob = 0.0f;
  bool operator==(const TokenLogprob&) const = default;
};

// The chosen token and the best alternatives, best first (ties: lowest id first).
struct PositionLogprobs {
  std::optional<TokenLogprob> chosen;  // Absent for the first prompt token.
  std::vector<TokenLogprob> top;
  bool operator==(const PositionLogprobs&) const = default;
};

struct SampledToken {
  uint32_t token = 0;
  std::optional<PositionLogprobs> logprobs;  // If asked for.
};

// Tokens of the sequence so far: [0, output_start) is prompt, the rest is output.
struct SamplingHistory {
  absl::Span<const uint32_t> tokens;
  uint32_t output_start = 0;
};

// `logits` [vocabulary] is scratch afterwards. The drawn token will stand at position history.tokens.size().
SampledToken Sample(absl::Span<float> logits, const SamplingParams& params,
                    const SamplingHistory& history);

// Log-probability of `chosen` (if any) and the `top_count` best under softmax(logits). For prompt log-probabilities.
PositionLogprobs LogprobsOf(absl::Span<const float> logits, std::optional<uint32_t> chosen,
                            uint32_t top_count);

}  // namespace baton::model
