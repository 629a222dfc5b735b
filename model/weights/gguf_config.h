// What the metadata of a GGUF file says about a Llama: its configuration, tokenizer, chat template and name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/llama/llama_config.h"
#include "model/weights/gguf_container.h"
#include "model/weights/model_file.h"

namespace baton::model {

// INVALID_ARGUMENT, naming the architecture, unless it is "llama" without experts.
absl::Status CheckArchitecture(const GgufMetadata& metadata);

// `vocabulary_size`: rows of the embeddings. tied_embeddings is left to the caller, who knows the tensors. Keys that
// would change the arithmetic in a way that is not implemented are errors.
absl::StatusOr<LlamaConfig> GgufLlamaConfig(const GgufMetadata& metadata, uint64_t vocabulary_size);

// Absent: the file has no tokenizer.
absl::StatusOr<std::optional<TokenizerData>> GgufTokenizer(const GgufMetadata& metadata);

absl::StatusOr<std::string> GgufChatTemplate(const GgufMetadata& metadata);  // Empty: none.
absl::StatusOr<std::string> GgufName(const GgufMetadata& metadata);          // Empty: none.

}  // namespace baton::model
