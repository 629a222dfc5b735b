#include "router/request.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/served_model.h"

namespace baton::router {
namespace {

template <typename Value>
absl::Status BadField(const std::string& field, Value value, absl::string_view legal) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be ", legal));
}

absl::Status CheckTokenId(const std::string& field, uint32_t id, uint32_t vocabulary_size) {
  if (id < vocabulary_size) return absl::OkStatus();
  return BadField(field, id, absl::StrCat("in [0, ", vocabulary_size, "), the vocabulary"));
}

absl::Status ValidateSampling(const SamplingParams& sampling, uint32_t vocabulary_size) {
  struct Range {
    const char* field;
    float value;
    bool legal;
    const char* range;
  };
  // Written so that a NaN is never legal.
  const auto within = [](float value, float low, float high) {
    return value >= low && value <= high;
  };
  const Range ranges[] = {
      {"temperature", sampling.temperature,
       std::isfinite(sampling.temperature) && sampling.temperature >= 0, "finite and >= 0"},
      {"top_p", sampling.top_p, sampling.top_p > 0 && sampling.top_p <= 1, "in (0, 1]"},
      {"min_p", sampling.min_p, within(sampling.min_p, 0, 1), "in [0, 1]"},
      {"repetition_penalty", sampling.repetition_penalty,
       std::isfinite(sampling.repetition_penalty) && sampling.repetition_penalty > 0,
       "finite and > 0"},
      {"presence_penalty", sampling.presence_penalty, within(sampling.presence_penalty, -2, 2),
       "in [-2, 2]"},
      {"frequency_penalty", sampling.frequency_penalty, within(sampling.frequency_penalty, -2, 2),
       "in [-2, 2]"},
  };
  for (const Range& range : ranges) {
    if (!range.legal)
      return BadField(absl::StrCat("sampling.", range.field), range.value, range.range);
  }
  if (sampling.logit_bias.size() > kLogitBiasMax) {
    return BadField("the number of sampling.logit_bias entries", sampling.logit_bias.size(),
                    absl::StrCat("at most ", kLogitBiasMax));
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    RETURN_IF_ERROR(CheckTokenId("a key of sampling.logit_bias", token, vocabulary_size));
    if (!within(bias, -100, 100)) {
      return BadField(absl::StrCat("sampling.logit_bias[", token, "]"), bias, "in [-100, 100]");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateStopConditions(const StopConditions& conditions, const ServedModel& model) {
  if (conditions.max_tokens.has_value() && *conditions.max_tokens < 1) {
    return BadField("stop_conditions.max_tokens", *conditions.max_tokens, ">= 1");
  }
  if (conditions.stop.size() > kStopStringsMax) {
    return BadField("the number of stop_conditions.stop strings", conditions.stop.size(),
                    absl::StrCat("at most ", kStopStringsMax));
  }
  for (size_t i = 0; i < conditions.stop.size(); ++i) {
    const size_t bytes = conditions.stop[i].size();
    if (bytes >= 1 && bytes <= kStopStringBytesMax) continue;
    return BadField(absl::StrCat("the length of stop_conditions.stop[", i, "]"), bytes,
                    absl::StrCat("in [1, ", kStopStringBytesMax, "] bytes"));
  }
  if (!conditions.stop.empty() && model.tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        "stop_conditions.stop needs a tokenizer, and the model has none");
  }
  if (conditions.stop_token_ids.size() > kStopTokenIdsMax) {
    return BadField("the number of stop_conditions.stop_token_ids",
                    conditions.stop_token_ids.size(), absl::StrCat("at most ", kStopTokenIdsMax));
  }
  return ValidateTokenIds(conditions.stop_token_ids, "stop_conditions.stop_token_ids",
                          model.vocabulary_size);
}

absl::Status ValidateLogprobs(const LogprobOptions& options) {
  const auto check = [](const char* field, const std::optional<uint32_t>& count) {
    if (!count.has_value() || *count <= kLogprobsMax) return absl::OkStatus();
    return BadField(absl::StrCat("logprob_options.", field), *count,
                    absl::StrCat("in [0, ", kLogprobsMax, "]"));
  };
  RETURN_IF_ERROR(check("logprobs", options.logprobs));
  return check("prompt_logprobs", options.prompt_logprobs);
}

absl::Status CheckPromptBytes(const char* field, size_t bytes, int64_t prompt_bytes_max) {
  if (bytes <= static_cast<size_t>(prompt_bytes_max)) return absl::OkStatus();
  return BadField(absl::StrCat("the length of ", field), bytes,
                  absl::StrCat("at most ", prompt_bytes_max, " bytes (--prompt_bytes_max)"));
}

absl::Status ValidateText(const TextPrompt& prompt, const ServedModel& model,
                          int64_t prompt_bytes_max) {
  if (prompt.text.empty()) {
    return absl::InvalidArgumentError(
        "text is empty (0 bytes), a prompt must have at least 1 byte");
  }
  if (model.tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        "text needs a tokenizer, and the model has none: send token_ids");
  }
  return CheckPromptBytes("text", prompt.text.size(), prompt_bytes_max);
}

absl::Status ValidateIds(const TokenPrompt& prompt, const ServedModel& model,
                         int64_t prompt_bytes_max) {
  if (prompt.ids.empty()) {
    return absl::InvalidArgumentError("token_ids is empty (0 ids), a prompt must have at least 1");
  }
  RETURN_IF_ERROR(
      CheckPromptBytes("token_ids", prompt.ids.size() * sizeof(uint32_t), prompt_bytes_max));
  return ValidateTokenIds(prompt.ids, "token_ids", model.vocabulary_size);
}

bool IsRole(const std::string& role) {
  constexpr std::array<absl::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

absl::Status ValidateChat(const ChatPrompt& prompt, const ServedModel& model,
                          int64_t prompt_bytes_max) {
  if (prompt.messages.empty() || prompt.messages.size() > kMessagesMax) {
    return BadField("the number of messages", prompt.messages.size(),
                    absl::StrCat("in [1, ", kMessagesMax, "]"));
  }
  size_t bytes = 0;
  for (size_t i = 0; i < prompt.messages.size(); ++i) {
    const ChatMessage& message = prompt.messages[i];
    bytes += message.content.size();
    if (IsRole(message.role)) continue;
    // A client's text goes into our logs and messages in a bounded size.
    return BadField(absl::StrCat("messages[", i, "].role"),
                    absl::StrCat("\"", message.role.substr(0, 32), "\""),
                    "one of \"system\", \"user\", \"assistant\", \"tool\"");
  }
  if (model.tokenizer == nullptr || model.chat_template == nullptr) {
    return absl::FailedPreconditionError("the model has no chat template: use Generate");
  }
  return CheckPromptBytes("all messages", bytes, prompt_bytes_max);
}

}  // namespace

absl::Status ValidateModelName(const std::string& name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("model is \"", name.substr(0, 128), "\", only \"",
                                          model.name, "\" is served here"));
}

absl::Status ValidateTokenIds(const std::vector<uint32_t>& ids, const std::string& field,
                              uint32_t vocabulary_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocabulary_size) continue;
    return CheckTokenId(absl::StrCat(field, "[", i, "]"), ids[i], vocabulary_size);
  }
  return absl::OkStatus();
}

absl::Status ValidatePrompt(const Prompt& prompt, const ServedModel& model,
                            int64_t prompt_bytes_max) {
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) {
    return ValidateText(*text, model, prompt_bytes_max);
  }
  if (const auto* ids = std::get_if<TokenPrompt>(&prompt)) {
    return ValidateIds(*ids, model, prompt_bytes_max);
  }
  return ValidateChat(std::get<ChatPrompt>(prompt), model, prompt_bytes_max);
}

absl::Status Validate(const RequestSpec& spec, const ServedModel& model, int64_t prompt_bytes_max) {
  RETURN_IF_ERROR(ValidateModelName(spec.model, model));
  if (spec.client_request_id.size() > kClientIdBytesMax) {
    return BadField("the length of client_request_id", spec.client_request_id.size(),
                    absl::StrCat("at most ", kClientIdBytesMax, " bytes"));
  }
  if (spec.n != 1) return BadField("n", spec.n, "1: more answers are not served yet");
  RETURN_IF_ERROR(ValidateSampling(spec.sampling, model.vocabulary_size));
  RETURN_IF_ERROR(ValidateStopConditions(spec.stop_conditions, model));
  RETURN_IF_ERROR(ValidateLogprobs(spec.logprob_options));
  return ValidatePrompt(spec.prompt, model, prompt_bytes_max);
}

absl::StatusOr<uint32_t> ResolveMaxTokens(uint64_t prompt_tokens, std::optional<int64_t> max_tokens,
                                          uint32_t context_tokens) {
  if (prompt_tokens >= context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt is ", prompt_tokens, " tokens long, must be at most ",
                     context_tokens == 0 ? 0 : context_tokens - 1, ": the context has ",
                     context_tokens, " tokens, for prompt and answer together"));
  }
  const uint64_t room = context_tokens - prompt_tokens;
  if (!max_tokens.has_value()) return static_cast<uint32_t>(room);
  if (static_cast<uint64_t>(*max_tokens) <= room) return static_cast<uint32_t>(*max_tokens);
  return absl::InvalidArgumentError(
      absl::StrCat("stop_conditions.max_tokens is ", *max_tokens, ", must be at most ", room,
                   ": the prompt has ", prompt_tokens, " tokens and the context ", context_tokens));
}

void AnswerPiece::Clear() {
  text.clear();
  tokens.clear();
  logprobs.clear();
  position = 0;
  prompt_logprobs.clear();
}

}  // namespace baton::router
