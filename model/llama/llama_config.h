// What defines a Llama-family model beside its weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton::model {

enum class RopeScaling { kNone, kLinear, kDynamic, kYarn, kLlama3 };

struct RopeConfig {
  float theta = 10000.0f;
  uint32_t dimensions = 0;  // Rotated dims of a head; <= head_dim, even.
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;
  uint32_t original_context_tokens = 0;
  // YaRN.
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  std::optional<float> attention_factor;  // Absent: 0.1 ln(factor) + 1.
  // Llama 3.
  float low_frequency_factor = 1.0f;
  float high_frequency_factor = 4.0f;
};

struct LlamaConfig {
  std::string architecture;  // "llama"
  uint32_t vocabulary_size = 0;
  uint32_t context_tokens = 0;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t feed_forward = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  float rms_epsilon = 1e-5f;
  RopeConfig rope;
  bool tied_embeddings = false;                // No output.weight: the head is token_embd.weight.
  std::vector<uint32_t> end_of_sequence_ids;   // From eos/eot metadata or generation_config.json.
};

// INVALID_ARGUMENT, naming field, value and legal range.
absl::Status Validate(const LlamaConfig& config);

}  // namespace baton::model
