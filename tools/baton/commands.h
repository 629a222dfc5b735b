// The subcommands of `baton`. Each prints to stdout and returns the first error.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/baton/inference_client.h"

namespace baton::tools {

struct ChatSettings {
  std::string prompt;  // Empty: ask at the terminal, turn by turn, until end of input.
  std::string system;  // Empty: no system message.
  AnswerOptions options;
};

absl::Status RunChat(InferenceClient& client, const ChatSettings& settings);
absl::Status RunGenerate(InferenceClient& client, const std::string& prompt,
                         const AnswerOptions& options);
absl::Status RunTokenize(InferenceClient& client, const std::string& text, bool parse_special);
absl::Status RunModels(InferenceClient& client);
absl::Status RunStatus(InferenceClient& client);

}  // namespace baton::tools
