#include "model/chat_template/predicates.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "model/chat_template/filters.h"
#include "model/chat_template/operators.h"

namespace baton::model::jinja {
namespace {

using Result = absl::StatusOr<bool>;

Result IsDefined(Runtime&, const Value& value, const BoundArguments&) {
  return !value.is_undefined();
}
Result IsUndefined(Runtime&, const Value& value, const BoundArguments&) {
  return value.is_undefined();
}
Result IsNone(Runtime&, const Value& value, const BoundArguments&) { return value.is_none(); }
Result IsText(Runtime&, const Value& value, const BoundArguments&) {
  return value.text() != nullptr;
}
Result IsMapping(Runtime&, const Value& value, const BoundArguments&) {
  return value.dict() != nullptr;
}
// Python's idea, where dicts and strings have a length and items, too.
Result IsSequence(Runtime&, const Value& value, const BoundArguments&) {
  return value.text() || value.list() || value.dict() || value.is_undefined();
}
Result IsIterable(Runtime&, const Value& value, const BoundArguments&) {
  return value.text() || value.list() || value.dict() || value.loop() || value.is_undefined();
}
Result IsAnyNumber(Runtime&, const Value& value, const BoundArguments&) { return IsNumber(value); }
Result IsInteger(Runtime&, const Value& value, const BoundArguments&) {
  return value.integer() != nullptr;
}
Result IsFloat(Runtime&, const Value& value, const BoundArguments&) {
  return value.real() != nullptr;
}
Result IsBoolean(Runtime&, const Value& value, const BoundArguments&) {
  return value.boolean() != nullptr;
}
Result IsTheTrue(Runtime&, const Value& value, const BoundArguments&) {
  return value.boolean() && *value.boolean();
}
Result IsTheFalse(Runtime&, const Value& value, const BoundArguments&) {
  return value.boolean() && !*value.boolean();
}
Result IsCallable(Runtime&, const Value& value, const BoundArguments&) {
  return value.is_callable();
}

template <bool upper>
Result IsCase(Runtime& runtime, const Value& value, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, value));
  RETURN_IF_ERROR(runtime.budget().SpendBytes(2 * text.text()->size()));
  return upper ? runtime.cases().IsUpper(*text.text()) : runtime.cases().IsLower(*text.text());
}

template <CompareOperator op>
Result Compares(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return Compare(runtime, op, value, *arguments[0]);
}

// The same object: for the values that templates compare so, the same type and equal.
Result IsSame(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (value.type_name() != arguments[0]->type_name()) return false;
  return AreEqual(runtime, value, *arguments[0]);
}

absl::StatusOr<bool> IsMultiple(Runtime& runtime, const Value& value, int64_t divisor) {
  ASSIGN_OR_RETURN(const Value remainder,
                   Apply(runtime, BinaryOperator::MODULO, value, Value(divisor)));
  return IsNumber(remainder) && ToReal(remainder) == 0;
}
Result IsEven(Runtime& runtime, const Value& value, const BoundArguments&) {
  return IsMultiple(runtime, value, 2);
}
Result IsOdd(Runtime& runtime, const Value& value, const BoundArguments&) {
  ASSIGN_OR_RETURN(const bool even, IsMultiple(runtime, value, 2));
  return !even;
}
Result IsDivisible(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t divisor, IntegerOr(arguments[0], 1, "num"));
  return IsMultiple(runtime, value, divisor);
}

Result IsFilter(Runtime&, const Value& value, const BoundArguments&) {
  return value.text() && FindFilter(*value.text()) != nullptr;
}
Result IsTest(Runtime&, const Value& value, const BoundArguments&) {
  return value.text() && FindTest(*value.text()) != nullptr;
}

constexpr TestSpec kTests[] = {
    {{"!=", {"other"}, 1}, Compares<CompareOperator::NOT_EQUAL>},
    {{"<", {"other"}, 1}, Compares<CompareOperator::LESS>},
    {{"<=", {"other"}, 1}, Compares<CompareOperator::LESS_EQUAL>},
    {{"==", {"other"}, 1}, Compares<CompareOperator::EQUAL>},
    {{">", {"other"}, 1}, Compares<CompareOperator::GREATER>},
    {{">=", {"other"}, 1}, Compares<CompareOperator::GREATER_EQUAL>},
    {{"boolean", {}}, IsBoolean},
    {{"callable", {}}, IsCallable},
    {{"defined", {}}, IsDefined},
    {{"divisibleby", {"num"}, 1}, IsDivisible},
    {{"eq", {"other"}, 1}, Compares<CompareOperator::EQUAL>},
    {{"equalto", {"other"}, 1}, Compares<CompareOperator::EQUAL>},
    {{"even", {}}, IsEven},
    {{"false", {}}, IsTheFalse},
    {{"filter", {}}, IsFilter},
    {{"float", {}}, IsFloat},
    {{"ge", {"other"}, 1}, Compares<CompareOperator::GREATER_EQUAL>},
    {{"greaterthan", {"other"}, 1}, Compares<CompareOperator::GREATER>},
    {{"gt", {"other"}, 1}, Compares<CompareOperator::GREATER>},
    {{"in", {"seq"}, 1}, Compares<CompareOperator::IN>},
    {{"integer", {}}, IsInteger},
    {{"iterable", {}}, IsIterable},
    {{"le", {"other"}, 1}, Compares<CompareOperator::LESS_EQUAL>},
    {{"lessthan", {"other"}, 1}, Compares<CompareOperator::LESS>},
    {{"lower", {}}, IsCase<false>},
    {{"lt", {"other"}, 1}, Compares<CompareOperator::LESS>},
    {{"mapping", {}}, IsMapping},
    {{"ne", {"other"}, 1}, Compares<CompareOperator::NOT_EQUAL>},
    {{"none", {}}, IsNone},
    {{"number", {}}, IsAnyNumber},
    {{"odd", {}}, IsOdd},
    {{"sameas", {"other"}, 1}, IsSame},
    {{"sequence", {}}, IsSequence},
    {{"string", {}}, IsText},
    {{"test", {}}, IsTest},
    {{"true", {}}, IsTheTrue},
    {{"undefined", {}}, IsUndefined},
    {{"upper", {}}, IsCase<true>},
};

}  // namespace

const TestSpec* FindTest(absl::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests), [&](const TestSpec& spec) {
    return spec.signature.name == name;
  });
  return found == std::end(kTests) ? nullptr : found;
}

std::string TestNames() {
  return absl::StrJoin(kTests, ", ", [](std::string* out, const TestSpec& spec) {
    out->append(spec.signature.name.data(), spec.signature.name.size());
  });
}

absl::StatusOr<bool> CallTest(Runtime& runtime, const TestSpec& spec, const Value& value,
                              const Arguments& arguments) {
  RETURN_IF_ERROR(runtime.budget().Spend());
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(spec.signature, arguments));
  return spec.test(runtime, value, bound);
}

}  // namespace baton::model::jinja
