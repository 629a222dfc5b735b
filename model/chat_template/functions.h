// The global functions of chat templates: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/arguments.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

inline constexpr int64_t kRangeMax = 100'000;  // As Jinja's sandbox has it.

struct Function {
  absl::string_view name;
  absl::StatusOr<Value> (*call)(Runtime& runtime, const Arguments& arguments);
};

// Null when there is none.
const Function* FindFunction(absl::string_view name);

}  // namespace baton::model::jinja
