#include "model/llama/llama_config.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::model {
namespace {

constexpr uint32_t kVocabularyMax = 1 << 20;
constexpr uint32_t kContextTokensMax = 1 << 24;
constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kHiddenMax = 1 << 16;
constexpr uint32_t kFeedForwardMax = 1 << 18;
constexpr uint32_t kHeadsMax = 1024;
constexpr uint32_t kHeadDimMax = 1024;
constexpr float kRopeThetaMax = 1e12f;
constexpr float kRopeFactorMax = 1e6f;

absl::Status CheckRange(const char* field, uint32_t value, uint32_t low, uint32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be in [", low, ", ", high, "]"));
}

// False for NaN as well.
absl::Status CheckRange(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be in [", low, ", ", high, "]"));
}

absl::Status CheckEven(const char* field, uint32_t value) {
  if (value % 2 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be even"));
}

absl::Status ValidateRope(const RopeConfig& rope, uint32_t head_dim) {
  RETURN_IF_ERROR(CheckRange("rope theta", rope.theta, 1.0f, kRopeThetaMax));
  RETURN_IF_ERROR(CheckRange("rope dimensions", rope.dimensions, 2, head_dim));
  RETURN_IF_ERROR(CheckEven("rope dimensions", rope.dimensions));
  if (rope.scaling == RopeScaling::kNone) return absl::OkStatus();

  RETURN_IF_ERROR(CheckRange("rope scaling factor", rope.factor, 1.0f, kRopeFactorMax));
  if (rope.scaling == RopeScaling::kLinear) return absl::OkStatus();

  RETURN_IF_ERROR(CheckRange("rope scaling original context", rope.original_context_tokens, 1,
                             kContextTokensMax));
  if (rope.scaling == RopeScaling::kYarn) {
    RETURN_IF_ERROR(CheckRange("rope beta_fast", rope.beta_fast, 1e-3f, 1e6f));
    RETURN_IF_ERROR(CheckRange("rope beta_slow", rope.beta_slow, 1e-3f, rope.beta_fast));
    RETURN_IF_ERROR(
        CheckRange("rope attention factor", rope.attention_factor.value_or(1.0f), 1e-3f, 1e3f));
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    RETURN_IF_ERROR(
        CheckRange("rope low frequency factor", rope.low_frequency_factor, 1e-3f, 1e6f));
    RETURN_IF_ERROR(
        CheckRange("rope high frequency factor", rope.high_frequency_factor, 1e-3f, 1e6f));
    if (rope.high_frequency_factor <= rope.low_frequency_factor) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rope high frequency factor is ", rope.high_frequency_factor,
          ", must be above the low frequency factor ", rope.low_frequency_factor));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const LlamaConfig& config) {
  if (config.architecture != "llama") {
    return absl::InvalidArgumentError(
        absl::StrCat("architecture is '", config.architecture, "', must be 'llama'"));
  }
  RETURN_IF_ERROR(CheckRange("vocabulary size", config.vocabulary_size, 1, kVocabularyMax));
  RETURN_IF_ERROR(CheckRange("context length", config.context_tokens, 1, kContextTokensMax));
  RETURN_IF_ERROR(CheckRange("layer count", config.layers, 1, kLayersMax));
  RETURN_IF_ERROR(CheckRange("hidden size", config.hidden, 1, kHiddenMax));
  RETURN_IF_ERROR(CheckRange("feed-forward size", config.feed_forward, 1, kFeedForwardMax));
  RETURN_IF_ERROR(CheckRange("head count", config.heads, 1, kHeadsMax));
  RETURN_IF_ERROR(CheckRange("KV head count", config.kv_heads, 1, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("KV head count is ", config.kv_heads,
                                                   ", must divide the head count ", config.heads));
  }
  RETURN_IF_ERROR(CheckRange("head dimension", config.head_dim, 2, kHeadDimMax));
  RETURN_IF_ERROR(CheckEven("head dimension", config.head_dim));
  RETURN_IF_ERROR(CheckRange("RMS epsilon", config.rms_epsilon, 1e-12f, 0.1f));
  RETURN_IF_ERROR(ValidateRope(config.rope, config.head_dim));
  for (const uint32_t id : config.end_of_sequence_ids) {
    RETURN_IF_ERROR(CheckRange("end-of-sequence id", id, 0, config.vocabulary_size - 1));
  }
  return absl::OkStatus();
}

}  // namespace baton::model
