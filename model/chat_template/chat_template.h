// A model's own chat template: a Jinja program in its metadata, compiled once, rendered for each chat.
//
// The interpreter is ours and bounded: no template may recurse, loop or grow without limit. It covers the subset that
// published chat templates use. Immutable after Compile(): any thread may render.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace baton::model {

struct ChatTemplateInputs {
  // All three are ordered: templates print objects in the order in which the client wrote them. Strings are valid UTF-8.
  // An array of objects as OpenAI has them: {"role": …, "content": …, …}. Not null.
  const nlohmann::ordered_json* messages = nullptr;
  const nlohmann::ordered_json* tools = nullptr;  // Null: none.
  const nlohmann::ordered_json* extra = nullptr;  // More variables (an object); null: none.
  bool add_generation_prompt = true;
  std::string bos_text, eos_text;
  absl::Time now;                          // What strftime_now shows, in UTC.
};

class ChatTemplate {
 public:
  static constexpr uint32_t kSourceBytesMax = 256 << 10;
  static constexpr uint32_t kNestingMax = 64;          // Of blocks, expressions and macro calls.
  static constexpr uint64_t kOperationsMax = 4 << 20;  // Evaluated nodes of one Render().
  static constexpr uint64_t kOutputBytesMax = 16 << 20;  // Also of all strings alive together.

  // INVALID_ARGUMENT naming line and column.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Compile(absl::string_view source);
  virtual ~ChatTemplate() = default;

  // INVALID_ARGUMENT: the template refuses (raise_exception; its own words are the message), or fails on these messages.
  // RESOURCE_EXHAUSTED: a bound above was reached.
  virtual absl::StatusOr<std::string> Render(const ChatTemplateInputs& inputs) const = 0;
};

}  // namespace baton::model
