// Values as JSON text, to the letter as Python's json.dumps(…, ensure_ascii=False) writes them:
// models were trained on that.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

struct JsonStyle {
  static constexpr int64_t kIndentMax = 64;

  std::optional<int64_t> indent;  // Absent: all on one line.
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii_only = false;
};

// INVALID_ARGUMENT when a value has no JSON form.
absl::Status AppendJson(const Value& value, const JsonStyle& style, Runtime& runtime,
                        TextBuilder& out);

}  // namespace baton::model::jinja
