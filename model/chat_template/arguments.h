// The arguments of a call, and how they are matched with a function's parameters.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<absl::string_view, Value>> named;  // Names live as long as the template.
};

inline constexpr size_t kParameterCountMax = 4;

struct Signature {
  absl::string_view name;
  std::array<absl::string_view, kParameterCountMax> parameters;  // Unused ones are empty.
  uint32_t required_count = 0;  // The first so many have no default.
};

// Arguments in the order of the parameters; null where none was given. Points into the Arguments.
using BoundArguments = std::array<const Value*, kParameterCountMax>;

// INVALID_ARGUMENT when one is missing, given twice, or has no parameter.
absl::StatusOr<BoundArguments> Bind(const Signature& signature, const Arguments& arguments);

// The value of an argument, or the default when it is null. INVALID_ARGUMENT when it has another
// type.
absl::StatusOr<int64_t> IntegerOr(const Value* argument, int64_t absent, absl::string_view name);
absl::StatusOr<absl::string_view> TextOr(const Value* argument, absl::string_view absent,
                                         absl::string_view name);

}  // namespace baton::model::jinja
