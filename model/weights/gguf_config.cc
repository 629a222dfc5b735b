#include "model/weights/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::model {
namespace {

constexpr uint64_t kTokensMax = 1 << 20;
constexpr uint64_t kMergesMax = 1 << 20;
// Llama 3's 128,256 tokens and 280,147 merges take 14 MiB; with everything else this keeps a file below 64 MiB.
constexpr uint64_t kTokenizerBytesMax = 40 << 20;
constexpr uint64_t kChatTemplateBytesMax = 1 << 20;
constexpr uint64_t kNameBytesMax = 256;
constexpr uint64_t kShortTextBytesMax = 64;

absl::Status Missing(const char* key) {
  return absl::InvalidArgumentError(absl::StrCat(key, " is missing"));
}

absl::StatusOr<uint32_t> RequiredUint(const GgufMetadata& metadata, const char* key) {
  ASSIGN_OR_RETURN(const std::optional<uint32_t> value, metadata.Uint(key, 1, UINT32_MAX));
  if (!value.has_value()) return Missing(key);
  return *value;
}

absl::StatusOr<uint32_t> UintOr(const GgufMetadata& metadata, const char* key, uint32_t otherwise) {
  ASSIGN_OR_RETURN(const std::optional<uint32_t> value, metadata.Uint(key, 0, UINT32_MAX));
  return value.value_or(otherwise);
}

absl::StatusOr<float> FloatOr(const GgufMetadata& metadata, const char* key, float otherwise) {
  ASSIGN_OR_RETURN(const std::optional<float> value, metadata.Float(key));
  return value.value_or(otherwise);
}

absl::StatusOr<std::string> TextOr(const GgufMetadata& metadata, const char* key,
                                   uint64_t bytes_max, const char* otherwise) {
  ASSIGN_OR_RETURN(const auto value, metadata.String(key));
  if (!value.has_value()) return std::string(otherwise);
  if (value->size() > bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(key, " has ", value->size(),
                                                   " bytes, must have at most ", bytes_max));
  }
  return std::string(*value);
}

// Keys of relatives of Llama that share its architecture name. Ignoring one would give wrong answers.
absl::Status RefuseUnsupportedKeys(const GgufMetadata& metadata) {
  for (const char* key : {"llama.logit_scale", "llama.embedding_scale", "llama.residual_scale",
                          "llama.attention.scale", "llama.attention.sliding_window"}) {
    if (metadata.Has(key)) {
      return absl::InvalidArgumentError(absl::StrCat(key, " is present, which is not supported"));
    }
  }
  ASSIGN_OR_RETURN(const std::optional<bool> causal, metadata.Bool("llama.attention.causal"));
  if (!causal.value_or(true)) {
    return absl::InvalidArgumentError("llama.attention.causal is false, must be true");
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const GgufMetadata& metadata, LlamaConfig& config) {
  ASSIGN_OR_RETURN(config.heads, RequiredUint(metadata, "llama.attention.head_count"));
  ASSIGN_OR_RETURN(config.kv_heads,
                   UintOr(metadata, "llama.attention.head_count_kv", config.heads));
  ASSIGN_OR_RETURN(config.head_dim,
                   UintOr(metadata, "llama.attention.key_length", config.hidden / config.heads));
  ASSIGN_OR_RETURN(const uint32_t value_length,
                   UintOr(metadata, "llama.attention.value_length", config.head_dim));
  if (value_length != config.head_dim) {
    return absl::InvalidArgumentError(absl::StrCat("llama.attention.value_length is ", value_length,
                                                   ", must equal the key length ",
                                                   config.head_dim));
  }
  return absl::OkStatus();
}

absl::Status ReadYarn(const GgufMetadata& metadata, RopeConfig& rope) {
  ASSIGN_OR_RETURN(rope.beta_fast, FloatOr(metadata, "llama.rope.scaling.yarn_beta_fast", 32));
  ASSIGN_OR_RETURN(rope.beta_slow, FloatOr(metadata, "llama.rope.scaling.yarn_beta_slow", 1));
  ASSIGN_OR_RETURN(const std::optional<float> factor,
                   metadata.Float("llama.rope.scaling.attn_factor"));
  // Here the key multiplies YaRN's own factor; in config.json it replaces it.
  if (factor.has_value()) {
    rope.attention_factor = *factor * (0.1f * std::log(std::max(rope.factor, 1e-6f)) + 1.0f);
  }
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const GgufMetadata& metadata, LlamaConfig& config) {
  RopeConfig& rope = config.rope;
  ASSIGN_OR_RETURN(const float old_factor, FloatOr(metadata, "llama.rope.scale_linear", 0));
  ASSIGN_OR_RETURN(rope.factor, FloatOr(metadata, "llama.rope.scaling.factor", old_factor));
  ASSIGN_OR_RETURN(rope.original_context_tokens,
                   UintOr(metadata, "llama.rope.scaling.original_context_length",
                          config.context_tokens));
  const char* const otherwise = rope.factor != 0 ? "linear" : "none";
  ASSIGN_OR_RETURN(const std::string type, TextOr(metadata, "llama.rope.scaling.type",
                                                  kShortTextBytesMax, otherwise));
  if (type == "none") {
    rope.factor = 1;
  } else if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    return ReadYarn(metadata, rope);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "llama.rope.scaling.type is '", type, "', must be 'none', 'linear' or 'yarn'"));
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufMetadata& metadata, LlamaConfig& config) {
  ASSIGN_OR_RETURN(config.rope.theta, FloatOr(metadata, "llama.rope.freq_base", 10000));
  ASSIGN_OR_RETURN(config.rope.dimensions,
                   UintOr(metadata, "llama.rope.dimension_count", config.head_dim));
  return ReadRopeScaling(metadata, config);
}

absl::StatusOr<std::vector<std::string>> OwnStrings(const GgufMetadata& metadata, const char* key,
                                                    uint64_t count_max, uint64_t& bytes_left) {
  ASSIGN_OR_RETURN(const auto views, metadata.Strings(key, count_max));
  std::vector<std::string> strings;
  strings.reserve(std::min<uint64_t>(views.size(), bytes_left / sizeof(std::string)));
  for (const absl::string_view view : views) {
    const uint64_t bytes = sizeof(std::string) + view.size();
    if (bytes > bytes_left) {
      return absl::InvalidArgumentError(absl::StrCat(
          key, ": the tokenizer needs more than ", kTokenizerBytesMax, " bytes"));
    }
    bytes_left -= bytes;
    strings.emplace_back(view);
  }
  return strings;
}

absl::StatusOr<std::optional<uint32_t>> TokenId(const GgufMetadata& metadata, const char* key,
                                                const TokenizerData& data) {
  return metadata.Uint(key, 0, static_cast<uint32_t>(data.tokens.size()) - 1);
}

absl::Status ReadSpecialTokens(const GgufMetadata& metadata, TokenizerData& data) {
  ASSIGN_OR_RETURN(data.bos_id, TokenId(metadata, "tokenizer.ggml.bos_token_id", data));
  ASSIGN_OR_RETURN(data.eos_id, TokenId(metadata, "tokenizer.ggml.eos_token_id", data));
  ASSIGN_OR_RETURN(data.eot_id, TokenId(metadata, "tokenizer.ggml.eot_token_id", data));
  ASSIGN_OR_RETURN(data.unknown_id, TokenId(metadata, "tokenizer.ggml.unknown_token_id", data));
  ASSIGN_OR_RETURN(data.padding_id, TokenId(metadata, "tokenizer.ggml.padding_token_id", data));
  ASSIGN_OR_RETURN(data.add_bos, metadata.Bool("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(data.add_eos, metadata.Bool("tokenizer.ggml.add_eos_token"));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArchitecture(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const std::string architecture,
                   TextOr(metadata, "general.architecture", kShortTextBytesMax, ""));
  if (architecture != "llama") {
    return absl::InvalidArgumentError(
        absl::StrCat("general.architecture is '", architecture, "', must be 'llama'"));
  }
  ASSIGN_OR_RETURN(const uint32_t experts, UintOr(metadata, "llama.expert_count", 0));
  if (experts != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("llama.expert_count is ", experts, ", must be 0: experts are not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<LlamaConfig> GgufLlamaConfig(const GgufMetadata& metadata,
                                            uint64_t vocabulary_size) {
  RETURN_IF_ERROR(RefuseUnsupportedKeys(metadata));
  LlamaConfig config = {.architecture = "llama"};
  config.vocabulary_size = static_cast<uint32_t>(std::min<uint64_t>(vocabulary_size, UINT32_MAX));
  ASSIGN_OR_RETURN(config.context_tokens, RequiredUint(metadata, "llama.context_length"));
  ASSIGN_OR_RETURN(config.layers, RequiredUint(metadata, "llama.block_count"));
  ASSIGN_OR_RETURN(config.hidden, RequiredUint(metadata, "llama.embedding_length"));
  ASSIGN_OR_RETURN(config.feed_forward, RequiredUint(metadata, "llama.feed_forward_length"));
  ASSIGN_OR_RETURN(config.rms_epsilon,
                   FloatOr(metadata, "llama.attention.layer_norm_rms_epsilon", 1e-5f));
  RETURN_IF_ERROR(ReadHeads(metadata, config));
  RETURN_IF_ERROR(ReadRope(metadata, config));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    ASSIGN_OR_RETURN(const std::optional<uint32_t> id, metadata.Uint(key, 0, UINT32_MAX));
    if (id.has_value()) config.end_of_sequence_ids.push_back(*id);
  }
  return config;
}

absl::StatusOr<std::optional<TokenizerData>> GgufTokenizer(const GgufMetadata& metadata) {
  if (!metadata.Has("tokenizer.ggml.tokens")) return std::nullopt;
  TokenizerData data;
  uint64_t bytes_left = kTokenizerBytesMax;
  ASSIGN_OR_RETURN(data.model,
                   TextOr(metadata, "tokenizer.ggml.model", kShortTextBytesMax, ""));
  ASSIGN_OR_RETURN(data.pre, TextOr(metadata, "tokenizer.ggml.pre", kShortTextBytesMax, ""));
  ASSIGN_OR_RETURN(data.tokens,
                   OwnStrings(metadata, "tokenizer.ggml.tokens", kTokensMax, bytes_left));
  ASSIGN_OR_RETURN(data.merges,
                   OwnStrings(metadata, "tokenizer.ggml.merges", kMergesMax, bytes_left));
  ASSIGN_OR_RETURN(data.types, metadata.Uints("tokenizer.ggml.token_type", kTokensMax));
  if (data.tokens.empty()) {
    return absl::InvalidArgumentError("tokenizer.ggml.tokens is empty");
  }
  if (data.types.empty()) data.types.assign(data.tokens.size(), 1);
  if (data.types.size() != data.tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.token_type has ", data.types.size(),
                     " elements, must have as many as tokenizer.ggml.tokens: ",
                     data.tokens.size()));
  }
  RETURN_IF_ERROR(ReadSpecialTokens(metadata, data));
  return data;
}

absl::StatusOr<std::string> GgufChatTemplate(const GgufMetadata& metadata) {
  return TextOr(metadata, "tokenizer.chat_template", kChatTemplateBytesMax, "");
}

absl::StatusOr<std::string> GgufName(const GgufMetadata& metadata) {
  return TextOr(metadata, "general.name", kNameBytesMax, "");
}

}  // namespace baton::model
