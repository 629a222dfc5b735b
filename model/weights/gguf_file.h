// A Llama in a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/weights/model_file.h"

namespace baton::model {

absl::StatusOr<std::unique_ptr<ModelFile>> OpenGgufFile(const std::string& path);

// The same on bytes in memory, which outlive the result; `path` only names them.
absl::StatusOr<std::unique_ptr<ModelFile>> ParseGgufFile(const std::string& path,
                                                         absl::Span<const uint8_t> bytes);

// The tokenizer alone, of a GGUF file of any architecture, also one without tensors. INVALID_ARGUMENT when there is none.
absl::StatusOr<TokenizerData> ReadGgufTokenizer(const std::string& path);

}  // namespace baton::model
