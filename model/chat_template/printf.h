// Python's `format % arguments`.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

// Fields wider or more precise than this are refused.
inline constexpr int kPrintfFieldMax = 1000;

// INVALID_ARGUMENT when a conversion is not known or does not fit its argument, or the numbers of
// both differ.
absl::StatusOr<Value> Printf(Runtime& runtime, absl::string_view format,
                             absl::Span<const Value> arguments);

}  // namespace baton::model::jinja
