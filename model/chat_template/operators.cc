#include "model/chat_template/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/chat_template/methods.h"
#include "model/chat_template/printf.h"

namespace baton::model::jinja {
namespace {

constexpr absl::string_view kSymbols[] = {"+", "-", "~", "*", "/", "//", "%", "**"};

absl::Status Unsupported(BinaryOperator op, const Value& a, const Value& b) {
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand types for ",
                                                 kSymbols[static_cast<int>(op)], ": '",
                                                 a.type_name(), "' and '", b.type_name(), "'"));
}

absl::Status Overflow() { return absl::InvalidArgumentError("integer is beyond 64 bits"); }
absl::Status DivisionByZero() { return absl::InvalidArgumentError("division by zero"); }

bool IsInteger(const Value& value) { return value.integer() || value.boolean(); }
int64_t ToInteger(const Value& value) {
  return value.integer() ? *value.integer() : *value.boolean() ? 1 : 0;
}

// Python rounds quotients down, so that the remainder has the divisor's sign.
absl::StatusOr<Value> FloorDivide(int64_t a, int64_t b, bool wants_remainder) {
  if (b == 0) return DivisionByZero();
  if (b == -1) {
    if (wants_remainder) return Value(int64_t{0});
    if (a == std::numeric_limits<int64_t>::min()) return Overflow();
    return Value(-a);
  }
  const bool rounds = a % b != 0 && (a < 0) != (b < 0);
  if (wants_remainder) return Value(a % b + (rounds ? b : 0));
  return Value(a / b - (rounds ? 1 : 0));
}

absl::StatusOr<Value> Power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value(result);
}

absl::StatusOr<Value> ApplyToIntegers(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::ADD:
      return __builtin_add_overflow(a, b, &result) ? absl::StatusOr<Value>(Overflow())
                                                   : Value(result);
    case BinaryOperator::SUBTRACT:
      return __builtin_sub_overflow(a, b, &result) ? absl::StatusOr<Value>(Overflow())
                                                   : Value(result);
    case BinaryOperator::MULTIPLY:
      return __builtin_mul_overflow(a, b, &result) ? absl::StatusOr<Value>(Overflow())
                                                   : Value(result);
    case BinaryOperator::DIVIDE:
      if (b == 0) return DivisionByZero();
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::FLOOR_DIVIDE:
      return FloorDivide(a, b, false);
    case BinaryOperator::MODULO:
      return FloorDivide(a, b, true);
    case BinaryOperator::POWER:
      return Power(a, b);
    case BinaryOperator::CONCATENATE:
      break;
  }
  CHECK(false) << "not an operator on integers";
  return Overflow();
}

absl::StatusOr<Value> ApplyToReals(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::ADD:
      return Value(a + b);
    case BinaryOperator::SUBTRACT:
      return Value(a - b);
    case BinaryOperator::MULTIPLY:
      return Value(a * b);
    case BinaryOperator::POWER:
      return Value(std::pow(a, b));
    case BinaryOperator::DIVIDE:
      if (b == 0) return DivisionByZero();
      return Value(a / b);
    case BinaryOperator::FLOOR_DIVIDE:
      if (b == 0) return DivisionByZero();
      return Value(std::floor(a / b));
    case BinaryOperator::MODULO:
      if (b == 0) return DivisionByZero();
      return Value(a - b * std::floor(a / b));
    case BinaryOperator::CONCATENATE:
      break;
  }
  CHECK(false) << "not an operator on floats";
  return Overflow();
}

absl::StatusOr<Value> Joined(Runtime& runtime, const List& a, const List& b) {
  RETURN_IF_ERROR(runtime.CheckRoom((a.items.size() + b.items.size()) * sizeof(Value)));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return a.is_tuple ? runtime.NewTuple(std::move(items)) : runtime.NewList(std::move(items));
}

absl::StatusOr<Value> Repeated(Runtime& runtime, const Value& value, int64_t times) {
  const uint64_t count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  if (value.text() != nullptr) {
    TextBuilder out(runtime);
    RETURN_IF_ERROR(out.AppendRepeated(*value.text(), count));
    return out.TakeValue();
  }
  const List& list = *value.list();
  std::vector<Value> items;
  if (!list.items.empty()) {
    constexpr uint64_t kCountMax = std::numeric_limits<uint64_t>::max() / sizeof(Value);
    RETURN_IF_ERROR(runtime.CheckRoom(count > kCountMax / list.items.size()
                                          ? std::numeric_limits<uint64_t>::max()
                                          : count * list.items.size() * sizeof(Value)));
    for (uint64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(runtime.budget().Spend(list.items.size()));
      items.insert(items.end(), list.items.begin(), list.items.end());
    }
  }
  return list.is_tuple ? runtime.NewTuple(std::move(items)) : runtime.NewList(std::move(items));
}

absl::StatusOr<Value> Concatenated(Runtime& runtime, const Value& a, const Value& b) {
  TextBuilder out(runtime);
  RETURN_IF_ERROR(AppendText(a, runtime, out));
  RETURN_IF_ERROR(AppendText(b, runtime, out));
  return out.TakeValue();
}

absl::StatusOr<bool> AreListsEqual(Runtime& runtime, const List& a, const List& b) {
  if (a.is_tuple != b.is_tuple || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(runtime, a.items[i], b.items[i]));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> AreDictsEqual(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const Dict::Entry& entry : a.entries) {
    const Value* other = b.Find(*entry.key.text());
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool equal, AreEqual(runtime, entry.value, *other));
    if (!equal) return false;
  }
  return true;
}

// What a loop shows of itself; undefined at the ends and for other names.
Value LoopAttribute(const Loop& loop, absl::string_view name) {
  const int64_t index = static_cast<int64_t>(loop.index);
  const int64_t length = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return int64_t{1};  // Deeper only in recursive loops.
  if (name == "depth0") return int64_t{0};
  if (name == "previtem" && index > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return loop.items->items[loop.index + 1];
  return Undefined{name};
}

// Where a slice begins and ends, as Python's slice.indices().
struct Range {
  int64_t start, stop, step;
};

absl::StatusOr<Range> RangeOf(const SliceBounds& bounds, int64_t length) {
  const auto get = [](const Value& bound,
                      absl::string_view name) -> absl::StatusOr<const int64_t*> {
    if (bound.is_none() || bound.is_undefined()) return nullptr;
    if (bound.integer()) return bound.integer();
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", name, " must be an integer, is ", bound.type_name()));
  };
  ASSIGN_OR_RETURN(const int64_t* start, get(bounds.start, "start"));
  ASSIGN_OR_RETURN(const int64_t* stop, get(bounds.stop, "stop"));
  ASSIGN_OR_RETURN(const int64_t* step_bound, get(bounds.step, "step"));
  // A larger step picks the same items.
  const int64_t step = std::clamp(step_bound ? *step_bound : 1, -length - 1, length + 1);
  if (step == 0) return absl::InvalidArgumentError("slice step must not be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
  const auto clamp = [&](int64_t bound) {
    return std::clamp(bound < 0 && bound >= -length ? bound + length
                      : bound < 0                   ? low
                                                    : bound,
                      low, high);
  };
  return Range{start      ? clamp(*start)
               : step > 0 ? low
                          : high,
               stop       ? clamp(*stop)
               : step > 0 ? high
                          : low,
               step};
}

absl::StatusOr<Value> SliceText(Runtime& runtime, const std::string& text,
                                const SliceBounds& bounds) {
  RETURN_IF_ERROR(runtime.budget().SpendBytes(2 * text.size()));
  ASSIGN_OR_RETURN(const Range range, RangeOf(bounds, static_cast<int64_t>(CountCharacters(text))));
  if (range.step == 1) {
    const int64_t stop = std::max(range.start, range.stop);
    return runtime.NewText(SubstringOfCharacters(text, static_cast<uint64_t>(range.start),
                                                 static_cast<uint64_t>(stop)));
  }
  // Byte offsets of the characters, and of the end.
  RETURN_IF_ERROR(runtime.CheckRoom(text.size() * sizeof(size_t)));
  std::vector<size_t> offsets;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      offsets.push_back(i);
    }
  }
  std::string picked;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    const size_t begin = offsets[static_cast<size_t>(i)];
    picked += text.substr(begin, offsets[static_cast<size_t>(i) + 1] - begin);
  }
  return runtime.NewText(std::move(picked));
}

absl::Status AppendRepresentation(const Value& value, Runtime& runtime, TextBuilder& out) {
  RETURN_IF_ERROR(runtime.budget().Spend());
  if (const std::string* text = value.text()) {
    RETURN_IF_ERROR(runtime.CheckRoom(text->size()));
    return out.Append(QuoteText(*text));
  }
  if (const List* list = value.list()) {
    RETURN_IF_ERROR(out.Append(list->is_tuple ? "(" : "["));
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(out.Append(", "));
      RETURN_IF_ERROR(AppendRepresentation(list->items[i], runtime, out));
    }
    return out.Append(!list->is_tuple ? "]" : list->items.size() == 1 ? ",)" : ")");
  }
  if (const Dict* dict = value.dict()) {
    RETURN_IF_ERROR(out.Append("{"));
    for (size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(out.Append(", "));
      RETURN_IF_ERROR(AppendRepresentation(dict->entries[i].key, runtime, out));
      RETURN_IF_ERROR(out.Append(": "));
      RETURN_IF_ERROR(AppendRepresentation(dict->entries[i].value, runtime, out));
    }
    return out.Append("}");
  }
  if (value.is_undefined()) return out.Append("Undefined");
  if (value.is_none()) return out.Append("None");
  if (value.boolean()) return out.Append(*value.boolean() ? "True" : "False");
  if (value.integer()) return out.Append(absl::StrCat(*value.integer()));
  if (value.real()) return out.Append(FloatToText(*value.real()));
  return absl::InvalidArgumentError(absl::StrCat("a ", value.type_name(), " cannot be printed"));
}

}  // namespace

bool IsNumber(const Value& value) { return IsInteger(value) || value.real(); }
double ToReal(const Value& value) {
  return value.real() ? *value.real() : static_cast<double>(ToInteger(value));
}

absl::Status UndefinedError(const Value& value) {
  const absl::string_view name = value.undefined()->name;
  return absl::InvalidArgumentError(name.empty() ? "the value is undefined"
                                                 : absl::StrCat("'", name, "' is undefined"));
}

bool IsTrue(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (IsNumber(value)) return ToReal(value) != 0;
  if (value.text()) return !value.text()->empty();
  if (value.list()) return !value.list()->items.empty();
  if (value.dict()) return !value.dict()->entries.empty();
  return true;
}

absl::StatusOr<bool> AreEqual(Runtime& runtime, const Value& a, const Value& b) {
  RETURN_IF_ERROR(runtime.budget().Spend());
  if (IsNumber(a) && IsNumber(b)) {
    return IsInteger(a) && IsInteger(b) ? ToInteger(a) == ToInteger(b) : ToReal(a) == ToReal(b);
  }
  if (a.text() && b.text()) {
    if (a.text()->size() != b.text()->size()) return false;
    RETURN_IF_ERROR(runtime.budget().SpendBytes(a.text()->size()));
    return *a.text() == *b.text();
  }
  if (a.list() && b.list()) return AreListsEqual(runtime, *a.list(), *b.list());
  if (a.dict() && b.dict()) return AreDictsEqual(runtime, *a.dict(), *b.dict());
  if (a.space() || b.space()) return a.space() == b.space();
  if (a.function() || b.function()) return a.function() == b.function();
  if (a.macro() || b.macro()) return a.macro() == b.macro();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

absl::StatusOr<bool> IsLess(Runtime& runtime, const Value& a, const Value& b) {
  RETURN_IF_ERROR(runtime.budget().Spend());
  if (IsNumber(a) && IsNumber(b)) {
    return IsInteger(a) && IsInteger(b) ? ToInteger(a) < ToInteger(b) : ToReal(a) < ToReal(b);
  }
  if (a.text() && b.text()) {
    RETURN_IF_ERROR(runtime.budget().SpendBytes(std::min(a.text()->size(), b.text()->size())));
    return *a.text() < *b.text();  // UTF-8 sorts as its code points do.
  }
  if (a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
    const auto &left = a.list()->items, &right = b.list()->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      ASSIGN_OR_RETURN(const bool equal, AreEqual(runtime, left[i], right[i]));
      if (!equal) return IsLess(runtime, left[i], right[i]);
    }
    return left.size() < right.size();
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  return absl::InvalidArgumentError(
      absl::StrCat("'", a.type_name(), "' and '", b.type_name(), "' have no order"));
}

absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const std::string* text = container.text()) {
    if (item.text() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'in <string>' requires string as left operand, not ", item.type_name()));
    }
    RETURN_IF_ERROR(runtime.budget().SpendBytes(text->size() + item.text()->size()));
    return FindText(*text, *item.text()) != absl::string_view::npos;
  }
  if (const List* list = container.list()) {
    for (const Value& candidate : list->items) {
      ASSIGN_OR_RETURN(const bool equal, AreEqual(runtime, candidate, item));
      if (equal) return true;
    }
    return false;
  }
  if (const Dict* dict = container.dict()) {
    return item.text() != nullptr && dict->Find(*item.text()) != nullptr;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("argument of type '", container.type_name(), "' is not iterable"));
}

absl::StatusOr<bool> Compare(Runtime& runtime, CompareOperator op, const Value& a, const Value& b) {
  absl::StatusOr<bool> result = false;
  bool negated = false;
  switch (op) {
    case CompareOperator::NOT_EQUAL:
      negated = true;
      [[fallthrough]];
    case CompareOperator::EQUAL:
      result = AreEqual(runtime, a, b);
      break;
    case CompareOperator::GREATER:
      result = IsLess(runtime, b, a);
      break;
    case CompareOperator::LESS:
      result = IsLess(runtime, a, b);
      break;
    case CompareOperator::NOT_IN:
      negated = true;
      [[fallthrough]];
    case CompareOperator::IN:
      result = Contains(runtime, b, a);
      break;
    case CompareOperator::LESS_EQUAL:
    case CompareOperator::GREATER_EQUAL: {
      const bool ascending = op == CompareOperator::LESS_EQUAL;
      result = ascending ? IsLess(runtime, a, b) : IsLess(runtime, b, a);
      if (result.ok() && !*result) result = AreEqual(runtime, a, b);
      break;
    }
  }
  if (!result.ok()) return result.status();
  return *result != negated;
}

absl::StatusOr<Value> Apply(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b) {
  if (op == BinaryOperator::CONCATENATE) return Concatenated(runtime, a, b);
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined() && !(op == BinaryOperator::MODULO && a.text())) return UndefinedError(b);
  if (IsInteger(a) && IsInteger(b)) return ApplyToIntegers(op, ToInteger(a), ToInteger(b));
  if (IsNumber(a) && IsNumber(b)) return ApplyToReals(op, ToReal(a), ToReal(b));
  switch (op) {
    case BinaryOperator::ADD:
      if (a.text() && b.text()) return Concatenated(runtime, a, b);
      if (a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
        return Joined(runtime, *a.list(), *b.list());
      }
      break;
    case BinaryOperator::MULTIPLY:
      if ((a.text() || a.list()) && IsInteger(b)) return Repeated(runtime, a, ToInteger(b));
      if ((b.text() || b.list()) && IsInteger(a)) return Repeated(runtime, b, ToInteger(a));
      break;
    case BinaryOperator::MODULO:
      if (a.text() && b.list() && b.list()->is_tuple)
        return Printf(runtime, *a.text(), b.list()->items);
      if (a.text()) return Printf(runtime, *a.text(), {&b, 1});
      break;
    default:
      break;
  }
  return Unsupported(op, a, b);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.real()) return Value(-*value.real());
  if (IsInteger(value)) return ApplyToIntegers(BinaryOperator::SUBTRACT, 0, ToInteger(value));
  return absl::InvalidArgumentError(
      absl::StrCat("bad operand type for unary -: '", value.type_name(), "'"));
}

absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& object, absl::string_view name) {
  if (object.is_undefined()) return UndefinedError(object);
  if (const Loop* loop = object.loop()) {
    Value value = LoopAttribute(*loop, name);
    if (!value.is_undefined()) return value;
  }
  if (const Namespace* space = object.space()) {
    RETURN_IF_ERROR(runtime.budget().Spend(space->attributes.size() / 16));
    const Value* value = space->Find(name);
    return value == nullptr ? Value(Undefined{name}) : *value;
  }
  if (const MethodSpec* method = FindMethod(object, name))
    return runtime.NewMethod(object, *method);
  if (const Dict* dict = object.dict()) {
    if (const Value* value = dict->Find(name)) return *value;
  }
  return Value(Undefined{name});
}

absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return UndefinedError(object);
  if (const std::string* name = key.text()) {
    if (const Dict* dict = object.dict()) {
      if (const Value* value = dict->Find(*name)) return *value;
    }
    if (const Namespace* space = object.space()) {
      const Value* value = space->Find(*name);
      return value == nullptr ? Value() : *value;
    }
    if (const MethodSpec* method = FindMethod(object, *name)) {
      return runtime.NewMethod(object, *method);
    }
    return Value();
  }
  if (!IsInteger(key) || (!object.list() && !object.text())) return Value();
  ASSIGN_OR_RETURN(const int64_t length, Length(runtime, object));
  const int64_t index = ToInteger(key) < 0 ? ToInteger(key) + length : ToInteger(key);
  if (index < 0 || index >= length) return Value();
  if (object.list()) return object.list()->items[static_cast<size_t>(index)];
  return runtime.NewText(SubstringOfCharacters(*object.text(), static_cast<uint64_t>(index),
                                               static_cast<uint64_t>(index) + 1));
}

absl::StatusOr<Value> GetSlice(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) return UndefinedError(object);
  if (object.text()) return SliceText(runtime, *object.text(), bounds);
  const List* list = object.list();
  if (list == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("a ", object.type_name(), " cannot be sliced"));
  }
  ASSIGN_OR_RETURN(const Range range, RangeOf(bounds, static_cast<int64_t>(list->items.size())));
  RETURN_IF_ERROR(runtime.CheckRoom(list->items.size() * sizeof(Value)));
  std::vector<Value> items;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    RETURN_IF_ERROR(runtime.budget().Spend());
    items.push_back(list->items[static_cast<size_t>(i)]);
  }
  return list->is_tuple ? runtime.NewTuple(std::move(items)) : runtime.NewList(std::move(items));
}

absl::StatusOr<std::shared_ptr<const List>> Iterate(Runtime& runtime, const Value& value) {
  if (auto list = value.shared_list()) return list;
  std::vector<Value> items;
  if (const std::string* text = value.text()) {
    RETURN_IF_ERROR(VisitCharacters(*text, [&](absl::string_view character) -> absl::Status {
      ASSIGN_OR_RETURN(items.emplace_back(), runtime.NewText(character));
      return absl::OkStatus();
    }));
  } else if (const Dict* dict = value.dict()) {
    RETURN_IF_ERROR(runtime.budget().Spend(dict->entries.size()));
    for (const Dict::Entry& entry : dict->entries) items.push_back(entry.key);
  } else if (!value.is_undefined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value.type_name(), "' object is not iterable"));
  }
  ASSIGN_OR_RETURN(const Value list, runtime.NewList(std::move(items)));
  return list.shared_list();
}

absl::StatusOr<int64_t> Length(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.text()) {
    RETURN_IF_ERROR(runtime.budget().SpendBytes(value.text()->size()));
    return static_cast<int64_t>(CountCharacters(*value.text()));
  }
  if (value.list()) return static_cast<int64_t>(value.list()->items.size());
  if (value.dict()) return static_cast<int64_t>(value.dict()->entries.size());
  if (value.loop()) return static_cast<int64_t>(value.loop()->items->items.size());
  return absl::InvalidArgumentError(
      absl::StrCat("object of type '", value.type_name(), "' has no len()"));
}

absl::Status AppendText(const Value& value, Runtime& runtime, TextBuilder& out) {
  if (value.text()) return out.Append(*value.text());
  if (value.is_undefined()) return absl::OkStatus();
  return AppendRepresentation(value, runtime, out);
}

absl::StatusOr<Value> ToText(Runtime& runtime, const Value& value) {
  if (value.text()) return value;
  TextBuilder out(runtime);
  RETURN_IF_ERROR(AppendText(value, runtime, out));
  return out.TakeValue();
}

absl::StatusOr<Value> Represent(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime);
  RETURN_IF_ERROR(AppendRepresentation(value, runtime, out));
  return out.TakeValue();
}

}  // namespace baton::model::jinja
