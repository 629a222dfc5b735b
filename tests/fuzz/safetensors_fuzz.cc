// The safetensors header and the JSON configurations on hostile bytes. A tensor's every byte must be readable.
#include <cstdint>
#include <string>
#include <vector>

#include "model/weights/hf_config.h"
#include "model/weights/safetensors_header.h"

namespace {

std::string WithLength(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i)));
  return file + header + std::string(data_bytes, '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto entries = baton::model::ParseSafetensors(absl::MakeConstSpan(data, size));
  volatile uint8_t sum = 0;
  if (entries.ok()) {
    for (const auto& entry : *entries) {
      for (uint64_t i = 0; i < entry.view.bytes(); ++i) sum = sum ^ entry.view.data[i];
    }
  }
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = baton::model::ParseHfConfig(text, "");
  if (config.ok() && !baton::model::Validate(*config).ok()) __builtin_trap();
  return 0;
}

extern "C" void BatonFuzzSeeds(std::vector<std::string>* seeds) {
  seeds->push_back(WithLength(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}}   )", 24));
  seeds->push_back(
      R"({"model_type":"llama","hidden_act":"silu","vocab_size":3,"max_position_embeddings":64,)"
      R"("num_hidden_layers":1,"hidden_size":4,"intermediate_size":6,"num_attention_heads":1,)"
      R"("num_key_value_heads":1,"head_dim":4,"rms_norm_eps":1e-5,"eos_token_id":[1,2],)"
      R"("rope_parameters":{"rope_type":"yarn","rope_theta":777,"factor":2,)"
      R"("original_max_position_embeddings":32,"attention_factor":1.25}})");
}
