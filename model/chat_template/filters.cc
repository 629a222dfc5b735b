#include "model/chat_template/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "model/chat_template/json_text.h"
#include "model/chat_template/methods.h"
#include "model/chat_template/operators.h"
#include "model/chat_template/predicates.h"
#include "model/chat_template/printf.h"

namespace baton::model::jinja {

struct FilterSpec {
  using Bound = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& input,
                                          const BoundArguments& arguments);
  using Variadic = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& input,
                                             const Arguments& arguments);
  Signature signature;    // Without the input.
  Bound bound = nullptr;  // One of the two is set.
  Variadic variadic = nullptr;
};

namespace {

using Result = absl::StatusOr<Value>;

bool FlagOr(const Value* argument, bool absent) {
  return argument == nullptr ? absent : IsTrue(*argument);
}

absl::StatusOr<std::string> TextOf(Runtime& runtime, const Value& value) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, value));
  return *text.text();
}

// --- Text.

Result ToString(Runtime& runtime, const Value& input, const BoundArguments&) {
  return ToText(runtime, input);
}

Result Trim(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, input));
  return StripText(runtime, *text.text(), arguments[0], Side::BOTH);
}

template <std::string (CaseMapper::*map)(absl::string_view) const>
Result MapCase(Runtime& runtime, const Value& input, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, input));
  RETURN_IF_ERROR(runtime.CheckRoom(text.text()->size()));
  return runtime.NewText((runtime.cases().*map)(*text.text()));
}

Result Replace(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, input));
  ASSIGN_OR_RETURN(const Value old_text, ToText(runtime, *arguments[0]));
  ASSIGN_OR_RETURN(const Value new_text, ToText(runtime, *arguments[1]));
  Replacement replacement = {*old_text.text(), *new_text.text()};
  if (arguments[2] != nullptr && !arguments[2]->is_none()) {
    ASSIGN_OR_RETURN(replacement.count, IntegerOr(arguments[2], -1, "count"));
  }
  return ReplaceText(runtime, *text.text(), replacement);
}

Result Escape(Runtime& runtime, const Value& input, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, input));
  RETURN_IF_ERROR(runtime.CheckRoom(text.text()->size()));
  return runtime.NewText(EscapeHtml(*text.text()));
}

Result Indent(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, input));
  std::string indentation;
  if (arguments[0] != nullptr && arguments[0]->text() != nullptr) {
    indentation = *arguments[0]->text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, IntegerOr(arguments[0], 4, "width"));
    RETURN_IF_ERROR(runtime.CheckRoom(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    indentation.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool indents_first = FlagOr(arguments[1], false),
             indents_blank = FlagOr(arguments[2], false);
  TextBuilder out(runtime);
  bool is_first = true;
  RETURN_IF_ERROR(SplitAt(*text.text(), "\n", {}, [&](absl::string_view line) -> absl::Status {
    const bool was_first = std::exchange(is_first, false);
    RETURN_IF_ERROR(runtime.budget().Spend());
    if (!was_first) RETURN_IF_ERROR(out.Append("\n"));
    if (was_first ? indents_first : indents_blank || !line.empty()) {
      RETURN_IF_ERROR(out.Append(indentation));
    }
    return out.Append(line);
  }));
  return out.TakeValue();
}

Result CountWords(Runtime& runtime, const Value& input, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, input));
  RETURN_IF_ERROR(runtime.budget().SpendBytes(text.text()->size()));
  int64_t count = 0;
  RETURN_IF_ERROR(SplitAtSpace(*text.text(), {}, [&](absl::string_view) {
    ++count;
    return absl::OkStatus();
  }));
  return Value(count);
}

Result Format(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime, input));
  if (arguments.named.empty()) return Printf(runtime, *text.text(), arguments.positional);
  if (!arguments.positional.empty()) {
    return absl::InvalidArgumentError("format takes arguments with names or without, not both");
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : arguments.named) {
    ASSIGN_OR_RETURN(Value key, runtime.NewText(name));
    dict->Set(std::move(key), value);
  }
  ASSIGN_OR_RETURN(const Value values, runtime.NewDict(std::move(dict)));
  return Printf(runtime, *text.text(), {&values, 1});
}

Result ToJson(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  JsonStyle style;
  style.ascii_only = FlagOr(arguments[0], false);
  if (arguments[1] != nullptr && !arguments[1]->is_none()) {
    ASSIGN_OR_RETURN(const int64_t indent, IntegerOr(arguments[1], 0, "indent"));
    if (indent < 0 || indent > JsonStyle::kIndentMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("tojson: indent is ", indent, "; legal are 0 to ", JsonStyle::kIndentMax));
    }
    style.indent = indent;
    style.item_separator = ",";
  }
  if (arguments[2] != nullptr && !arguments[2]->is_none()) {
    const List* separators = arguments[2]->list();
    if (separators == nullptr || separators->items.size() != 2 || !separators->items[0].text() ||
        !separators->items[1].text()) {
      return absl::InvalidArgumentError("tojson: separators must be two strings");
    }
    style.item_separator = *separators->items[0].text();
    style.key_separator = *separators->items[1].text();
  }
  style.sort_keys = FlagOr(arguments[3], false);
  TextBuilder out(runtime);
  RETURN_IF_ERROR(AppendJson(input, style, runtime, out));
  return out.TakeValue();
}

// --- Numbers.

Result ToInteger(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  const Value absent = arguments[0] == nullptr ? Value(int64_t{0}) : *arguments[0];
  ASSIGN_OR_RETURN(const int64_t base, IntegerOr(arguments[1], 10, "base"));
  if (base < 2 || base > 36) return absl::InvalidArgumentError("int: base must be 2 to 36");
  if (input.integer()) return input;
  if (input.boolean()) return Value(int64_t{*input.boolean()});
  double real = 0;
  if (input.real()) {
    real = *input.real();
  } else if (const std::string* text = input.text()) {
    RETURN_IF_ERROR(runtime.budget().SpendBytes(text->size()));
    absl::string_view digits = StripSpace(*text, Side::BOTH);
    if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
    int64_t integer = 0;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, integer, static_cast<int>(base));
    if (read.ec == std::errc() && read.ptr == end) return Value(integer);
    if (base != 10 || !absl::SimpleAtod(digits, &real)) return absent;
  } else {
    return absent;
  }
  if (!(real > -9.2e18 && real < 9.2e18)) return absent;
  return Value(static_cast<int64_t>(real));
}

Result ToFloat(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  if (IsNumber(input)) return Value(ToReal(input));
  double real = 0;
  if (const std::string* text = input.text()) {
    RETURN_IF_ERROR(runtime.budget().SpendBytes(text->size()));
    if (absl::SimpleAtod(StripSpace(*text, Side::BOTH), &real)) return Value(real);
  }
  return arguments[0] == nullptr ? Value(0.0) : *arguments[0];
}

Result Absolute(Runtime&, const Value& input, const BoundArguments&) {
  if (!IsNumber(input)) {
    return absl::InvalidArgumentError(absl::StrCat("abs: needs a number, got ", input.type_name()));
  }
  if (input.real()) return Value(std::fabs(*input.real()));
  return ToReal(input) < 0 ? Negate(input) : Result(input);
}

// Python's round(): to the nearest, ties to even.
Result Round(Runtime&, const Value& input, const BoundArguments& arguments) {
  if (!IsNumber(input)) {
    return absl::InvalidArgumentError(
        absl::StrCat("round: needs a number, got ", input.type_name()));
  }
  ASSIGN_OR_RETURN(const int64_t precision, IntegerOr(arguments[0], 0, "precision"));
  ASSIGN_OR_RETURN(const absl::string_view method, TextOr(arguments[1], "common", "method"));
  if (precision < -300 || precision > 300) {
    return absl::InvalidArgumentError("round: precision must be -300 to 300");
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return absl::InvalidArgumentError("round: method must be common, ceil or floor");
  }
  if (!input.real() && method == "common" && precision >= 0) return input;
  const double value = ToReal(input);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  if (precision <= 0) return Value(std::nearbyint(value * scale) / scale);
  // Through decimal digits, as Python does: value * scale may round across a tie.
  char digits[700];
  const auto written = std::to_chars(digits, digits + sizeof(digits), value,
                                     std::chars_format::fixed, static_cast<int>(precision));
  double rounded = value;
  std::from_chars(digits, written.ptr, rounded);
  return Value(rounded);
}

// --- Items of lists.

// item.a.0.b for "a.0.b": numbers are indices. `attribute` may be an integer.
Result AttributeOf(Runtime& runtime, const Value& item, const Value& attribute) {
  if (attribute.text() == nullptr) return GetItem(runtime, item, attribute);
  Value value = item;
  RETURN_IF_ERROR(SplitAt(*attribute.text(), ".", {}, [&](absl::string_view part) -> absl::Status {
    RETURN_IF_ERROR(runtime.budget().Spend());
    int64_t index = 0;
    Value key;
    if (absl::SimpleAtoi(part, &index)) {
      key = index;
    } else {
      ASSIGN_OR_RETURN(key, runtime.NewText(part));
    }
    ASSIGN_OR_RETURN(value, GetItem(runtime, value, key));
    return absl::OkStatus();
  }));
  return value;
}

// What a list is sorted or told apart by: an attribute, without regard to case unless asked.
struct SortKey {
  const Value* attribute;  // Null or none: the item itself.
  bool case_sensitive;
};

Result KeyOf(Runtime& runtime, const Value& item, const SortKey& key) {
  Value value = item;
  if (key.attribute != nullptr && !key.attribute->is_none()) {
    ASSIGN_OR_RETURN(value, AttributeOf(runtime, item, *key.attribute));
  }
  if (key.case_sensitive || value.text() == nullptr) return value;
  RETURN_IF_ERROR(runtime.CheckRoom(value.text()->size()));
  return runtime.NewText(runtime.cases().Lower(*value.text()));
}

absl::StatusOr<std::vector<Value>> KeysOf(Runtime& runtime, const std::vector<Value>& items,
                                          const SortKey& key) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    RETURN_IF_ERROR(runtime.budget().Spend());
    ASSIGN_OR_RETURN(keys.emplace_back(), KeyOf(runtime, item, key));
  }
  return keys;
}

// The indices of `keys` in ascending order, or descending; equal keys keep theirs. A merge sort of
// our own, since comparing may fail.
absl::StatusOr<std::vector<size_t>> SortedOrder(Runtime& runtime, const std::vector<Value>& keys,
                                                bool descending) {
  std::vector<size_t> order(keys.size()), merged(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin, right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
          const Value &a = keys[order[left]], &b = keys[order[right]];
          ASSIGN_OR_RETURN(takes_right, descending ? IsLess(runtime, a, b) : IsLess(runtime, b, a));
        }
        merged[out] = order[takes_right ? right++ : left++];
      }
    }
    std::swap(order, merged);
  }
  return order;
}

Result Sorted(Runtime& runtime, const std::vector<Value>& items, const SortKey& key,
              bool descending) {
  ASSIGN_OR_RETURN(const std::vector<Value> keys, KeysOf(runtime, items, key));
  ASSIGN_OR_RETURN(const std::vector<size_t> order, SortedOrder(runtime, keys, descending));
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return runtime.NewList(std::move(sorted));
}

Result Sort(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  const SortKey key = {arguments[2], FlagOr(arguments[1], false)};
  return Sorted(runtime, list->items, key, FlagOr(arguments[0], false));
}

Result SortDict(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  if (input.dict() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("dictsort: needs a dict, got ", input.type_name()));
  }
  ASSIGN_OR_RETURN(const absl::string_view by, TextOr(arguments[1], "key", "by"));
  if (by != "key" && by != "value") {
    return absl::InvalidArgumentError("dictsort: by must be key or value");
  }
  ASSIGN_OR_RETURN(const Value items, DictItems(runtime, *input.dict()));
  const Value index(int64_t{by == "value"});
  return Sorted(runtime, items.list()->items, {&index, FlagOr(arguments[0], false)},
                FlagOr(arguments[2], false));
}

Result Unique(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  const SortKey key = {arguments[1], FlagOr(arguments[0], false)};
  ASSIGN_OR_RETURN(const std::vector<Value> keys, KeysOf(runtime, list->items, key));
  absl::flat_hash_set<absl::string_view> texts;
  std::vector<Value> others, unique;
  for (size_t i = 0; i < keys.size(); ++i) {
    bool seen = false;
    if (keys[i].text()) {
      RETURN_IF_ERROR(runtime.budget().SpendBytes(keys[i].text()->size()));
      seen = !texts.insert(*keys[i].text()).second;
    }
    for (size_t j = 0; j < others.size() && !keys[i].text() && !seen; ++j) {
      ASSIGN_OR_RETURN(seen, AreEqual(runtime, keys[i], others[j]));
    }
    if (seen) continue;
    if (!keys[i].text()) others.push_back(keys[i]);
    unique.push_back(list->items[i]);
  }
  return runtime.NewList(std::move(unique));
}

template <bool wants_max>
Result Extreme(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  const SortKey key = {arguments[1], FlagOr(arguments[0], false)};
  ASSIGN_OR_RETURN(const std::vector<Value> keys, KeysOf(runtime, list->items, key));
  if (keys.empty()) return Value();
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    ASSIGN_OR_RETURN(const bool better, wants_max ? IsLess(runtime, keys[best], keys[i])
                                                  : IsLess(runtime, keys[i], keys[best]));
    if (better) best = i;
  }
  return list->items[best];
}

Result Sum(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  ASSIGN_OR_RETURN(const std::vector<Value> values,
                   KeysOf(runtime, list->items, {arguments[0], true}));
  Value sum = arguments[1] == nullptr ? Value(int64_t{0}) : *arguments[1];
  for (const Value& value : values) {
    ASSIGN_OR_RETURN(sum, Apply(runtime, BinaryOperator::ADD, sum, value));
  }
  return sum;
}

Result Reverse(Runtime& runtime, const Value& input, const BoundArguments&) {
  const Value reversed(int64_t{-1});
  if (input.text()) return GetSlice(runtime, input, {Value(), Value(), reversed});
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  RETURN_IF_ERROR(runtime.CheckRoom(list->items.size() * sizeof(Value)));
  return runtime.NewList({list->items.rbegin(), list->items.rend()});
}

Result First(Runtime& runtime, const Value& input, const BoundArguments&) {
  if (input.text()) return GetItem(runtime, input, Value(int64_t{0}));
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  return list->items.empty() ? Value() : list->items.front();
}

Result Last(Runtime& runtime, const Value& input, const BoundArguments&) {
  if (input.text()) return GetItem(runtime, input, Value(int64_t{-1}));
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  return list->items.empty() ? Value() : list->items.back();
}

Result CountItems(Runtime& runtime, const Value& input, const BoundArguments&) {
  ASSIGN_OR_RETURN(const int64_t length, Length(runtime, input));
  return Value(length);
}

Result ToList(Runtime& runtime, const Value& input, const BoundArguments&) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  if (!list->is_tuple) return Value(list);
  RETURN_IF_ERROR(runtime.CheckRoom(list->items.size() * sizeof(Value)));
  return runtime.NewList(list->items);
}

Result Items(Runtime& runtime, const Value& input, const BoundArguments&) {
  if (input.is_undefined()) return runtime.NewList({});
  if (input.dict() == nullptr) {
    return absl::InvalidArgumentError("Can only get item pairs from a mapping.");
  }
  return DictItems(runtime, *input.dict());
}

Result Join(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  std::string separator;
  if (arguments[0] != nullptr) {
    ASSIGN_OR_RETURN(separator, TextOf(runtime, *arguments[0]));
  }
  if (arguments[1] == nullptr) return JoinTexts(runtime, separator, list->items);
  ASSIGN_OR_RETURN(const std::vector<Value> values,
                   KeysOf(runtime, list->items, {arguments[1], true}));
  return JoinTexts(runtime, separator, values);
}

Result Batch(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  ASSIGN_OR_RETURN(const int64_t count, IntegerOr(arguments[0], 1, "linecount"));
  if (count < 1) return absl::InvalidArgumentError("batch: linecount must be positive");
  const size_t size = static_cast<size_t>(count);
  std::vector<Value> batches;
  for (size_t begin = 0; begin < list->items.size(); begin += std::min(size, list->items.size())) {
    const size_t end = begin + std::min(size, list->items.size() - begin);
    std::vector<Value> batch(list->items.begin() + static_cast<ptrdiff_t>(begin),
                             list->items.begin() + static_cast<ptrdiff_t>(end));
    if (arguments[1] != nullptr && !arguments[1]->is_none() && batch.size() < size) {
      if (size > std::numeric_limits<uint32_t>::max()) {
        return absl::ResourceExhaustedError("batch: linecount is too large to fill");
      }
      RETURN_IF_ERROR(runtime.CheckRoom(size * sizeof(Value)));
      batch.resize(size, *arguments[1]);
    }
    ASSIGN_OR_RETURN(batches.emplace_back(), runtime.NewList(std::move(batch)));
  }
  return runtime.NewList(std::move(batches));
}

Result Default(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  const bool replaces = input.is_undefined() || (FlagOr(arguments[1], false) && !IsTrue(input));
  if (!replaces) return input;
  return arguments[0] == nullptr ? runtime.NewText(std::string()) : Result(*arguments[0]);
}

Result Attribute(Runtime& runtime, const Value& input, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const absl::string_view name, TextOr(arguments[0], "", "name"));
  ASSIGN_OR_RETURN(Value value, GetAttribute(runtime, input, name));
  // The name of an undefined value must live as long as the template; this one need not.
  return value.is_undefined() ? Value() : std::move(value);
}

Result Same(Runtime&, const Value& input, const BoundArguments&) { return input; }

// --- Filters that call filters and tests.

// Arguments from the `from`-th on.
Arguments Rest(const Arguments& arguments, size_t from) {
  const auto begin = arguments.positional.begin() + static_cast<ptrdiff_t>(from);
  return {{begin, arguments.positional.end()}, arguments.named};
}

Result MapAttribute(Runtime& runtime, const List& list, const Arguments& arguments) {
  constexpr Signature kSignature = {"map", {"attribute", "default"}, 1};
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(kSignature, arguments));
  std::vector<Value> mapped;
  for (const Value& item : list.items) {
    ASSIGN_OR_RETURN(Value value, AttributeOf(runtime, item, *bound[0]));
    mapped.push_back(value.is_undefined() && bound[1] != nullptr ? *bound[1] : std::move(value));
  }
  return runtime.NewList(std::move(mapped));
}

Result Map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  if (arguments.positional.empty()) return MapAttribute(runtime, *list, arguments);
  ASSIGN_OR_RETURN(const absl::string_view name, TextOr(&arguments.positional[0], "", "filter"));
  const FilterSpec* filter = FindFilter(name);
  if (filter == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("map: no filter is named '", name, "'"));
  }
  const Arguments rest = Rest(arguments, 1);
  std::vector<Value> mapped;
  for (const Value& item : list->items) {
    ASSIGN_OR_RETURN(mapped.emplace_back(), CallFilter(runtime, *filter, item, rest));
  }
  return runtime.NewList(std::move(mapped));
}

// select, reject, selectattr and rejectattr: the items for which a test (by default: is true) comes
// out as `wanted`.
template <bool wanted, bool by_attribute>
Result Select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto list, Iterate(runtime, input));
  const size_t name_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < name_at) {
    return absl::InvalidArgumentError("selectattr and rejectattr need an attribute");
  }
  const TestSpec* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > name_at) {
    ASSIGN_OR_RETURN(const absl::string_view name,
                     TextOr(&arguments.positional[name_at], "", "test"));
    test = FindTest(name);
    if (test == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("no test is named '", name, "'"));
    }
    rest = Rest(arguments, name_at + 1);
  }
  std::vector<Value> selected;
  for (const Value& item : list->items) {
    RETURN_IF_ERROR(runtime.budget().Spend());
    Value value = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(value, AttributeOf(runtime, item, arguments.positional[0]));
    }
    absl::StatusOr<bool> holds = IsTrue(value);
    if (test != nullptr) holds = CallTest(runtime, *test, value, rest);
    if (!holds.ok()) return holds.status();
    if (*holds == wanted) selected.push_back(item);
  }
  return runtime.NewList(std::move(selected));
}

constexpr FilterSpec kFilters[] = {
    {{"abs", {}}, Absolute},
    {{"attr", {"name"}, 1}, Attribute},
    {{"batch", {"linecount", "fill_with"}, 1}, Batch},
    {{"capitalize", {}}, MapCase<&CaseMapper::Capitalize>},
    {{"count", {}}, CountItems},
    {{"d", {"default_value", "boolean"}}, Default},
    {{"default", {"default_value", "boolean"}}, Default},
    {{"dictsort", {"case_sensitive", "by", "reverse"}}, SortDict},
    {{"e", {}}, Escape},
    {{"escape", {}}, Escape},
    {{"first", {}}, First},
    {{"float", {"default"}}, ToFloat},
    {{"format", {}}, nullptr, Format},
    {{"indent", {"width", "first", "blank"}}, Indent},
    {{"int", {"default", "base"}}, ToInteger},
    {{"items", {}}, Items},
    {{"join", {"d", "attribute"}}, Join},
    {{"last", {}}, Last},
    {{"length", {}}, CountItems},
    {{"list", {}}, ToList},
    {{"lower", {}}, MapCase<&CaseMapper::Lower>},
    {{"map", {}}, nullptr, Map},
    {{"max", {"case_sensitive", "attribute"}}, Extreme<true>},
    {{"min", {"case_sensitive", "attribute"}}, Extreme<false>},
    {{"reject", {}}, nullptr, Select<false, false>},
    {{"rejectattr", {}}, nullptr, Select<false, true>},
    {{"replace", {"old", "new", "count"}, 2}, Replace},
    {{"reverse", {}}, Reverse},
    {{"round", {"precision", "method"}}, Round},
    {{"safe", {}}, Same},
    {{"select", {}}, nullptr, Select<true, false>},
    {{"selectattr", {}}, nullptr, Select<true, true>},
    {{"sort", {"reverse", "case_sensitive", "attribute"}}, Sort},
    {{"string", {}}, ToString},
    {{"sum", {"attribute", "start"}}, Sum},
    {{"title", {}}, MapCase<&CaseMapper::TitleFilter>},
    {{"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}}, ToJson},
    {{"trim", {"chars"}}, Trim},
    {{"unique", {"case_sensitive", "attribute"}}, Unique},
    {{"upper", {}}, MapCase<&CaseMapper::Upper>},
    {{"wordcount", {}}, CountWords},
};

}  // namespace

const FilterSpec* FindFilter(absl::string_view name) {
  const auto found =
      std::find_if(std::begin(kFilters), std::end(kFilters),
                   [&](const FilterSpec& spec) { return spec.signature.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

std::string FilterNames() {
  return absl::StrJoin(kFilters, ", ", [](std::string* out, const FilterSpec& spec) {
    out->append(spec.signature.name.data(), spec.signature.name.size());
  });
}

absl::StatusOr<Value> CallFilter(Runtime& runtime, const FilterSpec& spec, const Value& input,
                                 const Arguments& arguments) {
  RETURN_IF_ERROR(runtime.budget().Spend());
  if (spec.variadic != nullptr) return spec.variadic(runtime, input, arguments);
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(spec.signature, arguments));
  return spec.bound(runtime, input, bound);
}

}  // namespace baton::model::jinja
