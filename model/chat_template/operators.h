// Python's operators and protocols on template values. Each spends from the budget for what it
// walks over.
//
// INVALID_ARGUMENT when the types do not fit, in Python's words; RESOURCE_EXHAUSTED at a bound of
// the budget.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat_template/ast.h"
#include "model/chat_template/runtime.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

bool IsTrue(const Value& value);
absl::StatusOr<bool> AreEqual(Runtime& runtime, const Value& a, const Value& b);
absl::StatusOr<bool> IsLess(Runtime& runtime, const Value& a, const Value& b);
absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item);
absl::StatusOr<bool> Compare(Runtime& runtime, CompareOperator op, const Value& a, const Value& b);

absl::StatusOr<Value> Apply(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b);
absl::StatusOr<Value> Negate(const Value& value);

// object.name and object[key]; what is not there is undefined. `name` lives as long as the
// template.
absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& object, absl::string_view name);
absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);
// Bounds as Python has them: none or undefined stands for one that was left out.
struct SliceBounds {
  Value start, stop, step;
};
absl::StatusOr<Value> GetSlice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

// The items that a for walks over: of a list, the characters of a text, the keys of a dict; none of
// undefined.
absl::StatusOr<std::shared_ptr<const List>> Iterate(Runtime& runtime, const Value& value);
absl::StatusOr<int64_t> Length(Runtime& runtime, const Value& value);

// str(value) and repr(value).
absl::Status AppendText(const Value& value, Runtime& runtime, TextBuilder& out);
absl::StatusOr<Value> ToText(Runtime& runtime, const Value& value);
absl::StatusOr<Value> Represent(Runtime& runtime, const Value& value);

// Ints, floats and bools are numbers.
bool IsNumber(const Value& value);
double ToReal(const Value& value);  // REQUIRES: IsNumber().

absl::Status UndefinedError(const Value& value);  // REQUIRES: undefined.

}  // namespace baton::model::jinja
