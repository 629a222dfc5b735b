#include "model/tokenizer/tokenizer.h"

#include "absl/strings/str_cat.h"
#include "model/tokenizer/byte_level_bpe.h"

namespace baton::model {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const TokenizerData& data) {
  if (data.model != "gpt2") {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.model is \"", data.model, "\"; known is gpt2"));
  }
  return ByteLevelBpe::Create(data);
}

}  // namespace baton::model
