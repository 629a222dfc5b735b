// Walks a template's syntax tree and writes what it prints.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/ast.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

// Expressions and blocks under evaluation, one inside the other, macros' included: bounds the C++
// stack (about 1 KiB each) where ChatTemplate::kNestingMax bounds what a template may write.
inline constexpr uint32_t kEvaluationDepthMax = 512;

// Variables by name; names that the template does not use are not looked at.
using Variables = absl::flat_hash_map<absl::string_view, Value>;

// INVALID_ARGUMENT naming line and column, or with the template's own words when it raises;
// RESOURCE_EXHAUSTED at a bound.
absl::StatusOr<std::string> Interpret(const Template& parsed, const Variables& variables,
                                      Runtime& runtime);

}  // namespace baton::model::jinja
