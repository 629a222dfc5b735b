// Expected values of a tiny model, as ../shared/oracle/README.md describes them; tests/golden has the same form.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor_archive.h"

namespace baton::model {

struct OraclePrompt {
  std::string id;
  std::vector<uint32_t> prompt_ids;
  std::vector<uint32_t> greedy_ids;
  std::vector<double> greedy_margins;
  std::vector<double> greedy_logprobs;
  bool beyond_original_context = false;
};

struct LlamaOracle {
  // Throws when a file is missing. `stem`: what stands before "expected.json", a folder's "/" included.
  explicit LlamaOracle(const std::string& stem);

  std::vector<OraclePrompt> prompts;
  std::unordered_map<std::string, ArchivedTensor> tensors;  // logits.pN [V], all_logits.p4, greedy_logits.p4 [24, V]
};

}  // namespace baton::model
