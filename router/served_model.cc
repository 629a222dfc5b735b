#include "router/served_model.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace baton::router {
namespace {

// The prompt of a model that wants a BOS begins with exactly one, whoever put it there.
void PrependBos(const model::Tokenizer& tokenizer, std::vector<uint32_t>& tokens) {
  if (!tokenizer.adds_bos()) return;
  if (!tokens.empty() && tokens.front() == tokenizer.bos_id()) return;
  tokens.insert(tokens.begin(), tokenizer.bos_id());
}

absl::StatusOr<EncodedPrompt> EncodeText(const model::Tokenizer& tokenizer, absl::string_view text,
                                         bool parse_special, uint32_t tokens_max) {
  const size_t tokens_at_least = text.size() / tokenizer.token_bytes_max();
  if (tokens_at_least > tokens_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", text.size(), " bytes, which are at least ", tokens_at_least,
        " tokens, must be at most ", tokens_max));
  }
  EncodedPrompt encoded;
  // Not add_special: it also appends an end-of-sequence token where a model's metadata asks for
  // one.
  ASSIGN_OR_RETURN(encoded.tokens,
                   tokenizer.Encode(text, {.add_special = false, .parse_special = parse_special}));
  PrependBos(tokenizer, encoded.tokens);
  return encoded;
}

absl::StatusOr<std::string> RenderChat(const ServedModel& model, const ChatPrompt& chat,
                                       absl::Time now) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const ChatMessage& message : chat.messages) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  model::ChatTemplateInputs inputs;
  inputs.messages = &messages;
  inputs.add_generation_prompt = true;
  inputs.bos_text = model.tokenizer->bos_text();
  inputs.eos_text = model.tokenizer->eos_text();
  inputs.now = now;
  absl::StatusOr<std::string> rendered = model.chat_template->Render(inputs);
  if (rendered.ok()) return rendered;
  return absl::Status(rendered.status().code(), absl::StrCat("the chat template refuses messages: ",
                                                             rendered.status().message()));
}

}  // namespace

absl::StatusOr<EncodedPrompt> EncodePrompt(const ServedModel& model, const Prompt& prompt,
                                           absl::Time now, uint32_t tokens_max) {
  if (const auto* ids = std::get_if<TokenPrompt>(&prompt)) return EncodedPrompt{.tokens = ids->ids};
  CHECK(model.tokenizer != nullptr);
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) {
    return EncodeText(*model.tokenizer, text->text, text->parse_special, tokens_max);
  }
  CHECK(model.chat_template != nullptr);
  ASSIGN_OR_RETURN(std::string rendered, RenderChat(model, std::get<ChatPrompt>(prompt), now));
  ASSIGN_OR_RETURN(EncodedPrompt encoded,
                   EncodeText(*model.tokenizer, rendered, true, tokens_max));
  encoded.rendered_text = std::move(rendered);
  return encoded;
}

std::string DecodeTokens(const ServedModel& model, const std::vector<uint32_t>& ids) {
  model::IncrementalDetokenizer detokenizer(*model.tokenizer, /*keep_special=*/true);
  std::string text;
  for (const uint32_t id : ids) text += detokenizer.Append(id);
  text += detokenizer.Flush();
  return text;
}

}  // namespace baton::router
