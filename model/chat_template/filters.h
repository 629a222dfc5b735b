// Jinja's filters: `value | join(", ")`.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/arguments.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

struct FilterSpec;

// Null when there is none.
const FilterSpec* FindFilter(absl::string_view name);
std::string FilterNames();

absl::StatusOr<Value> CallFilter(Runtime& runtime, const FilterSpec& spec, const Value& input,
                                 const Arguments& arguments);

}  // namespace baton::model::jinja
