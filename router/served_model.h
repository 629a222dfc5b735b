// What the router knows of the model it serves: text in, text out, names and limits. No weights.
//
// Immutable after loading: any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat_template/chat_template.h"
#include "model/tokenizer/tokenizer.h"
#include "router/request.h"

namespace baton::router {

struct ServedModel {
  std::string name;
  std::string architecture;
  std::string
      digest;  // SHA-256 of the model's content, as workers report it; empty: any worker will do.
  uint32_t vocabulary_size = 0;
  uint32_t context_tokens = 0;  // By the file; workers may have less.
  std::vector<uint32_t> end_of_sequence_ids;
  std::unique_ptr<const model::Tokenizer> tokenizer;         // Null: token ids only.
  std::unique_ptr<const model::ChatTemplate> chat_template;  // Null: no Chat.
};

struct EncodedPrompt {
  std::vector<uint32_t> tokens;
  std::string rendered_text;  // Of a chat.
};

// Exactly the ids that a worker computes on: template, tokenizer, and one BOS if the model wants
// it. Takes time in proportion to the text: text pool only.
// INVALID_ARGUMENT: the template refuses, or the text is so long that it cannot be `tokens_max`
// tokens or less, which is found out before time is spent on it.
absl::StatusOr<EncodedPrompt> EncodePrompt(const ServedModel& model, const Prompt& prompt,
                                           absl::Time now, uint32_t tokens_max);

// Token ids to valid UTF-8, special tokens spelled out. REQUIRES: model.tokenizer, ids inside the
// vocabulary.
std::string DecodeTokens(const ServedModel& model, const std::vector<uint32_t>& ids);

}  // namespace baton::router
