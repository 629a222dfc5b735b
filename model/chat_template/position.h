// A place in a template's source.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton::model::jinja {

struct Position {
  uint32_t line = 1;    // From 1.
  uint32_t column = 1;  // From 1, in characters.
};

inline std::string ToString(Position position) {
  return absl::StrCat("line ", position.line, ", column ", position.column);
}

inline absl::Status SyntaxError(Position position, absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat("chat template ", ToString(position), ": ", message));
}

}  // namespace baton::model::jinja
