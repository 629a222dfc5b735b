#include "model/weights/llama_tensors.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace baton::model {
namespace {

struct TensorRule {
  uint64_t rows = 0;
  uint64_t columns = 0;
  bool required = true;
  bool vector = false;  // Norms, biases, frequencies: kept in floats, never quantised.
};

struct LayerTensor {
  absl::string_view gguf;          // After "blk.N."
  absl::string_view hugging_face;  // After "model.layers.N."
  TensorRule rule;
};

std::vector<LayerTensor> LayerTensors(const LlamaConfig& c) {
  const uint64_t q_rows = uint64_t{c.heads} * c.head_dim;
  const uint64_t kv_rows = uint64_t{c.kv_heads} * c.head_dim;
  const auto matrix = [](uint64_t rows, uint64_t columns) { return TensorRule{rows, columns}; };
  const auto norm = [&] { return TensorRule{1, c.hidden, true, true}; };
  const auto bias = [](uint64_t size) { return TensorRule{1, size, false, true}; };
  return {
      {"attn_norm.weight", "input_layernorm.weight", norm()},
      {"attn_q.weight", "self_attn.q_proj.weight", matrix(q_rows, c.hidden)},
      {"attn_k.weight", "self_attn.k_proj.weight", matrix(kv_rows, c.hidden)},
      {"attn_v.weight", "self_attn.v_proj.weight", matrix(kv_rows, c.hidden)},
      {"attn_output.weight", "self_attn.o_proj.weight", matrix(c.hidden, q_rows)},
      {"ffn_norm.weight", "post_attention_layernorm.weight", norm()},
      {"ffn_gate.weight", "mlp.gate_proj.weight", matrix(c.feed_forward, c.hidden)},
      {"ffn_up.weight", "mlp.up_proj.weight", matrix(c.feed_forward, c.hidden)},
      {"ffn_down.weight", "mlp.down_proj.weight", matrix(c.hidden, c.feed_forward)},
      {"attn_q.bias", "self_attn.q_proj.bias", bias(q_rows)},
      {"attn_k.bias", "self_attn.k_proj.bias", bias(kv_rows)},
      {"attn_v.bias", "self_attn.v_proj.bias", bias(kv_rows)},
      {"attn_output.bias", "self_attn.o_proj.bias", bias(c.hidden)},
      {"ffn_gate.bias", "mlp.gate_proj.bias", bias(c.feed_forward)},
      {"ffn_up.bias", "mlp.up_proj.bias", bias(c.feed_forward)},
      {"ffn_down.bias", "mlp.down_proj.bias", bias(c.hidden)},
  };
}

// All tensors of the model, by GGUF name. At most 1,024 layers (Validate()) of 16.
absl::btree_map<std::string, TensorRule> TensorRules(const LlamaConfig& c) {
  absl::btree_map<std::string, TensorRule> rules;
  rules["token_embd.weight"] = {c.vocabulary_size, c.hidden};
  rules["output_norm.weight"] = {1, c.hidden, true, true};
  if (!c.tied_embeddings) rules["output.weight"] = {c.vocabulary_size, c.hidden};
  rules["rope_freqs.weight"] = {1, c.rope.dimensions / 2, false, true};
  const std::vector<LayerTensor> layer_tensors = LayerTensors(c);
  for (uint32_t layer = 0; layer < c.layers; ++layer) {
    for (const LayerTensor& tensor : layer_tensors) {
      rules[absl::StrCat("blk.", layer, ".", tensor.gguf)] = tensor.rule;
    }
  }
  return rules;
}

bool IsFloat(kernels::TensorType type) {
  return type == kernels::TensorType::kF32 || type == kernels::TensorType::kF16 ||
         type == kernels::TensorType::kBf16;
}

absl::Status CheckTensor(const std::string& name, const kernels::TensorView& view,
                         const TensorRule& rule) {
  if (view.rows != rule.rows || view.columns != rule.columns) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " has shape [", view.rows, ", ",
                                                   view.columns, "], must have [", rule.rows, ", ",
                                                   rule.columns, "]"));
  }
  if (rule.vector && !IsFloat(view.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has type ", std::string(kernels::TensorTypeName(view.type)),
                     ", must be F32, F16 or BF16"));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<std::string> GgufNameOf(absl::string_view name) {
  constexpr std::array<std::pair<absl::string_view, absl::string_view>, 3> kTop = {{
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
  }};
  for (const auto& [hugging_face, gguf] : kTop) {
    if (name == hugging_face) return std::string(gguf);
  }
  if (!absl::ConsumePrefix(&name, "model.layers.")) return std::nullopt;
  const size_t dot = name.find('.');
  uint32_t layer = 0;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(0, dot), &layer)) {
    return std::nullopt;
  }
  for (const LayerTensor& tensor : LayerTensors(LlamaConfig{})) {
    if (name.substr(dot + 1) == tensor.hugging_face) {
      return absl::StrCat("blk.", layer, ".", tensor.gguf);
    }
  }
  return std::nullopt;
}

absl::Status CheckLlamaTensors(const LlamaConfig& config, const TensorMap& tensors) {
  const absl::btree_map<std::string, TensorRule> rules = TensorRules(config);
  for (const auto& [name, view] : tensors) {
    const auto rule = rules.find(name);
    if (rule == rules.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", name, " is not part of a Llama of ", config.layers, " layers"));
    }
    RETURN_IF_ERROR(CheckTensor(name, view, rule->second));
  }
  for (const auto& [name, rule] : rules) {
    if (rule.required && !tensors.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::model
