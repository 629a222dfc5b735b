// The methods of Python's strings, lists and dicts that templates call. None changes its value.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/arguments.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

// Null when values of this type have no such method.
const MethodSpec* FindMethod(const Value& self, absl::string_view name);

absl::StatusOr<Value> CallMethod(Runtime& runtime, const Method& method,
                                 const Arguments& arguments);

// What str.replace() and the filter `replace` do; at most `count` times, no bound when negative.
struct Replacement {
  absl::string_view old_text, new_text;
  int64_t count = -1;
};
absl::StatusOr<Value> ReplaceText(Runtime& runtime, absl::string_view text,
                                  const Replacement& replacement);

// Without white space, or without the characters of `characters` (null, none or undefined: white
// space), at its ends.
absl::StatusOr<Value> StripText(Runtime& runtime, absl::string_view text, const Value* characters,
                                Side side);

// The entries of a dict, each a tuple of key and value.
absl::StatusOr<Value> DictItems(Runtime& runtime, const Dict& dict);

// The items, as text, with `separator` between.
absl::StatusOr<Value> JoinTexts(Runtime& runtime, absl::string_view separator,
                                const std::vector<Value>& items);

}  // namespace baton::model::jinja
