#include "model/weights/hf_config.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::model {
namespace {

using nlohmann::json;

constexpr int kConfigDepthMax = 8;
constexpr size_t kEndIdsMax = 64;

absl::Status Wrong(const std::string& key, const json& value, absl::string_view legal) {
  const std::string shown = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", shown.substr(0, 64), ", must be ", legal));
}

// Null when the key is absent or null.
const json* Find(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<std::optional<uint32_t>> Uint(const json& object, const std::string& key) {
  const json* value = Find(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<uint64_t>() > UINT32_MAX) {
    return Wrong(key, *value, "an integer in [0, 4294967295]");
  }
  return value->get<uint32_t>();
}

absl::StatusOr<uint32_t> RequiredUint(const json& object, const std::string& key) {
  ASSIGN_OR_RETURN(const std::optional<uint32_t> value, Uint(object, key));
  if (!value.has_value()) return absl::InvalidArgumentError(absl::StrCat(key, " is missing"));
  return *value;
}

absl::StatusOr<std::optional<float>> Float(const json& object, const std::string& key) {
  const json* value = Find(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<float>())) {
    return Wrong(key, *value, "a finite number");
  }
  return value->get<float>();
}

absl::StatusOr<float> FloatOr(const json& object, const std::string& key, float otherwise) {
  ASSIGN_OR_RETURN(const std::optional<float> value, Float(object, key));
  return value.value_or(otherwise);
}

// The value must be absent, or this one.
absl::Status CheckFixed(const json& object, const std::string& key, const json& only) {
  const json* value = Find(object, key);
  if (value == nullptr || *value == only) return absl::OkStatus();
  return Wrong(key, *value, absl::StrCat(only.dump(), " or absent"));
}

absl::Status CheckAbsent(const json& object, const std::string& key) {
  const json* value = Find(object, key);
  if (value == nullptr) return absl::OkStatus();
  return Wrong(key, *value, "absent: it is not supported");
}

absl::Status ReadYarn(const json& rope, RopeConfig& out) {
  RETURN_IF_ERROR(CheckAbsent(rope, "mscale"));
  RETURN_IF_ERROR(CheckAbsent(rope, "mscale_all_dim"));
  RETURN_IF_ERROR(CheckFixed(rope, "truncate", true));
  ASSIGN_OR_RETURN(out.beta_fast, FloatOr(rope, "beta_fast", 32));
  ASSIGN_OR_RETURN(out.beta_slow, FloatOr(rope, "beta_slow", 1));
  ASSIGN_OR_RETURN(out.attention_factor, Float(rope, "attention_factor"));
  return absl::OkStatus();
}

absl::Status ReadLlama3(const json& rope, RopeConfig& out) {
  ASSIGN_OR_RETURN(out.low_frequency_factor, FloatOr(rope, "low_freq_factor", 1));
  ASSIGN_OR_RETURN(out.high_frequency_factor, FloatOr(rope, "high_freq_factor", 4));
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const json& rope, const LlamaConfig& config, RopeConfig& out) {
  const json* type = Find(rope, "rope_type");
  if (type == nullptr) type = Find(rope, "type");
  if (type == nullptr || *type == "default") return absl::OkStatus();

  ASSIGN_OR_RETURN(const std::optional<float> factor, Float(rope, "factor"));
  if (!factor.has_value()) return absl::InvalidArgumentError("rope scaling factor is missing");
  out.factor = *factor;
  ASSIGN_OR_RETURN(const std::optional<uint32_t> original,
                   Uint(rope, "original_max_position_embeddings"));
  out.original_context_tokens = original.value_or(config.context_tokens);
  if (*type == "linear") {
    out.scaling = RopeScaling::kLinear;
    return absl::OkStatus();
  }
  if (*type == "dynamic") {
    out.scaling = RopeScaling::kDynamic;
    return absl::OkStatus();
  }
  if (*type == "yarn") {
    out.scaling = RopeScaling::kYarn;
    return ReadYarn(rope, out);
  }
  if (*type == "llama3") {
    out.scaling = RopeScaling::kLlama3;
    return ReadLlama3(rope, out);
  }
  return Wrong("rope_type", *type, "default, linear, dynamic, yarn or llama3");
}

absl::Status ReadRope(const json& object, LlamaConfig& config) {
  config.rope.dimensions = config.head_dim;
  RETURN_IF_ERROR(CheckFixed(object, "partial_rotary_factor", 1.0));
  ASSIGN_OR_RETURN(config.rope.theta, FloatOr(object, "rope_theta", 10000));
  const json* rope = Find(object, "rope_parameters");
  if (rope == nullptr) rope = Find(object, "rope_scaling");
  if (rope == nullptr) return absl::OkStatus();
  if (!rope->is_object()) return Wrong("rope scaling", *rope, "an object");
  RETURN_IF_ERROR(CheckFixed(*rope, "partial_rotary_factor", 1.0));
  ASSIGN_OR_RETURN(config.rope.theta, FloatOr(*rope, "rope_theta", config.rope.theta));
  return ReadRopeScaling(*rope, config, config.rope);
}

// An id or a list of them.
absl::Status ReadEndIds(const json& object, std::vector<uint32_t>& ids) {
  const json* value = Find(object, "eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  ids.clear();
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kEndIdsMax) return Wrong("eos_token_id", *value, "at most 64 ids");
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX) {
      return Wrong("eos_token_id", id, "an integer in [0, 4294967295]");
    }
    ids.push_back(id.get<uint32_t>());
  }
  return absl::OkStatus();
}

absl::Status CheckSupported(const json& object) {
  const json* type = Find(object, "model_type");
  if (type == nullptr) return absl::InvalidArgumentError("model_type is missing");
  if (*type != "llama") return Wrong("model_type", *type, "\"llama\"");
  RETURN_IF_ERROR(CheckFixed(object, "hidden_act", "silu"));
  RETURN_IF_ERROR(CheckAbsent(object, "quantization_config"));
  return absl::OkStatus();
}

absl::Status ReadSizes(const json& object, LlamaConfig& config) {
  ASSIGN_OR_RETURN(config.vocabulary_size, RequiredUint(object, "vocab_size"));
  ASSIGN_OR_RETURN(config.context_tokens, RequiredUint(object, "max_position_embeddings"));
  ASSIGN_OR_RETURN(config.layers, RequiredUint(object, "num_hidden_layers"));
  ASSIGN_OR_RETURN(config.hidden, RequiredUint(object, "hidden_size"));
  ASSIGN_OR_RETURN(config.feed_forward, RequiredUint(object, "intermediate_size"));
  ASSIGN_OR_RETURN(config.heads, RequiredUint(object, "num_attention_heads"));
  if (config.heads == 0) return absl::InvalidArgumentError("num_attention_heads is 0, must be above");
  ASSIGN_OR_RETURN(const auto kv_heads, Uint(object, "num_key_value_heads"));
  config.kv_heads = kv_heads.value_or(config.heads);
  ASSIGN_OR_RETURN(const auto head_dim, Uint(object, "head_dim"));
  config.head_dim = head_dim.value_or(config.hidden / config.heads);
  ASSIGN_OR_RETURN(config.rms_epsilon, FloatOr(object, "rms_norm_eps", 1e-6f));
  return absl::OkStatus();
}

absl::StatusOr<bool> BoolOr(const json& object, const std::string& key, bool otherwise) {
  const json* value = Find(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return Wrong(key, *value, "true or false");
  return value->get<bool>();
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(absl::string_view text, const std::string& what,
                                     int depth_max) {
  bool too_deep = false;
  const json::parser_callback_t bound_depth = [&](int depth, json::parse_event_t, json&) {
    if (depth > depth_max) too_deep = true;
    return depth <= depth_max;
  };
  json object = json::parse(text.begin(), text.end(), bound_depth, /*allow_exceptions=*/false);
  if (too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is nested deeper than ", depth_max, " levels"));
  }
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not a JSON object"));
  }
  return object;
}

absl::StatusOr<LlamaConfig> ParseHfConfig(absl::string_view config_text,
                                          absl::string_view generation_text) {
  ASSIGN_OR_RETURN(const json object,
                   ParseJsonObject(config_text, "config.json", kConfigDepthMax));
  RETURN_IF_ERROR(CheckSupported(object));
  LlamaConfig config = {.architecture = "llama"};
  RETURN_IF_ERROR(ReadSizes(object, config));
  RETURN_IF_ERROR(ReadRope(object, config));
  ASSIGN_OR_RETURN(config.tied_embeddings, BoolOr(object, "tie_word_embeddings", false));
  RETURN_IF_ERROR(ReadEndIds(object, config.end_of_sequence_ids));
  if (!generation_text.empty()) {
    ASSIGN_OR_RETURN(const json generation, ParseJsonObject(generation_text,
                                                            "generation_config.json",
                                                            kConfigDepthMax));
    RETURN_IF_ERROR(ReadEndIds(generation, config.end_of_sequence_ids));
  }
  RETURN_IF_ERROR(Validate(config));
  return config;
}

}  // namespace baton::model
