// config.json and generation_config.json of a Hugging Face folder. Both spellings of RoPE scaling are read: `rope_scaling`
// with `type` or `rope_type`, and `rope_parameters` of transformers 5. A value that would change the arithmetic in a way
// that is not implemented is an error.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/llama/llama_config.h"
#include "nlohmann/json.hpp"

namespace baton::model {

// A JSON object of at most `depth_max` levels. INVALID_ARGUMENT naming `what`. The caller bounds the text's length.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, const std::string& what,
                                               int depth_max);

// `generation_config` may be empty: there is no such file. The result is valid (Validate()).
absl::StatusOr<LlamaConfig> ParseHfConfig(absl::string_view config,
                                          absl::string_view generation_config);

}  // namespace baton::model
