// Jinja's tests: `value is defined`, `value is divisibleby 3`.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/arguments.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

struct TestSpec {
  Signature signature;  // Without the value that is tested.
  absl::StatusOr<bool> (*test)(Runtime& runtime, const Value& value,
                               const BoundArguments& arguments);
};

// Null when there is none.
const TestSpec* FindTest(absl::string_view name);
std::string TestNames();

absl::StatusOr<bool> CallTest(Runtime& runtime, const TestSpec& spec, const Value& value,
                              const Arguments& arguments);

}  // namespace baton::model::jinja
