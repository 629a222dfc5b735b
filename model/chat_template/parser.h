// Turns a template's source into its syntax tree.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/ast.h"

namespace baton::model::jinja {

// INVALID_ARGUMENT naming line and column; unknown filters, tests and statements are errors here
// and not at rendering. REQUIRES: `source` is valid UTF-8.
absl::StatusOr<std::unique_ptr<const Template>> Parse(absl::string_view source);

}  // namespace baton::model::jinja
