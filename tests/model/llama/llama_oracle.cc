#include "llama_oracle.h"

#include <fstream>

#include "nlohmann/json.hpp"

namespace baton::model {

LlamaOracle::LlamaOracle(const std::string& stem)
    : tensors(ReadTensorArchive(stem + "expected.safetensors")) {
  std::ifstream file(stem + "expected.json");
  const nlohmann::json expected = nlohmann::json::parse(file);
  for (const auto& prompt : expected.at("prompts")) {
    prompts.push_back({.id = prompt.at("id"),
                       .prompt_ids = prompt.at("prompt_ids"),
                       .greedy_ids = prompt.at("greedy_ids"),
                       .greedy_margins = prompt.at("greedy_margins"),
                       .greedy_logprobs = prompt.at("greedy_logprobs"),
                       .beyond_original_context = prompt.value("beyond_original_context", false)});
  }
}

}  // namespace baton::model
