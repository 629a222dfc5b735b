#include "model/chat_template/methods.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/chat_template/operators.h"

namespace baton::model::jinja {

enum class Receiver { TEXT, LIST, DICT, LOOP };

struct MethodSpec {
  using Bound = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& self,
                                          const BoundArguments& arguments);
  using Variadic = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& self,
                                             const Arguments& arguments);
  Receiver receiver;
  Signature signature;
  Bound bound = nullptr;  // One of the two is set.
  Variadic variadic = nullptr;
};

namespace {

using Result = absl::StatusOr<Value>;

bool IsAbsent(const Value* argument) {
  return argument == nullptr || argument->is_none() || argument->is_undefined();
}

// --- Strings.

template <bool from_right>
Result Split(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  const std::string& text = *self.text();
  SplitOptions options = {.from_right = from_right};
  ASSIGN_OR_RETURN(options.splits_max, IntegerOr(arguments[1], -1, "maxsplit"));
  std::vector<Value> pieces;
  const auto add = [&](absl::string_view piece) -> absl::Status {
    ASSIGN_OR_RETURN(pieces.emplace_back(), runtime.NewText(piece));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(runtime.budget().SpendBytes(text.size()));
  if (IsAbsent(arguments[0])) {
    RETURN_IF_ERROR(SplitAtSpace(text, options, add));
  } else {
    ASSIGN_OR_RETURN(const absl::string_view separator, TextOr(arguments[0], "", "sep"));
    if (separator.empty()) return absl::InvalidArgumentError("split: empty separator");
    RETURN_IF_ERROR(runtime.budget().SpendBytes(from_right ? text.size() * separator.size()
                                                           : separator.size()));
    RETURN_IF_ERROR(SplitAt(text, separator, options, add));
  }
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return runtime.NewList(std::move(pieces));
}

Result SplitIntoLines(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  RETURN_IF_ERROR(runtime.budget().SpendBytes(self.text()->size()));
  std::vector<Value> lines;
  RETURN_IF_ERROR(SplitLines(*self.text(), arguments[0] != nullptr && IsTrue(*arguments[0]),
                             [&](absl::string_view line) -> absl::Status {
                               ASSIGN_OR_RETURN(lines.emplace_back(), runtime.NewText(line));
                               return absl::OkStatus();
                             }));
  return runtime.NewList(std::move(lines));
}

template <Side side>
Result Strip(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  return StripText(runtime, *self.text(), arguments[0], side);
}

bool HasAffix(absl::string_view text, absl::string_view affix, bool at_end) {
  return at_end ? absl::EndsWith(text, affix) : absl::StartsWith(text, affix);
}

// With a text, or with any of a tuple of texts.
template <bool at_end>
Result HasAnyAffix(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  const List* list = arguments[0]->list();
  if (list == nullptr) {
    ASSIGN_OR_RETURN(const absl::string_view affix, TextOr(arguments[0], "", "prefix"));
    RETURN_IF_ERROR(runtime.budget().SpendBytes(affix.size()));
    return Value(HasAffix(*self.text(), affix, at_end));
  }
  bool found = false;
  for (const Value& item : list->items) {
    ASSIGN_OR_RETURN(const absl::string_view affix, TextOr(&item, "", "prefix"));
    RETURN_IF_ERROR(runtime.budget().SpendBytes(affix.size() + 1));
    found = found || HasAffix(*self.text(), affix, at_end);
  }
  return Value(found);
}

template <bool at_end>
Result RemoveAffix(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const absl::string_view affix, TextOr(arguments[0], "", "prefix"));
  absl::string_view text = *self.text();
  if (HasAffix(text, affix, at_end)) {
    at_end ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  return runtime.NewText(text);
}

template <std::string (CaseMapper::*map)(absl::string_view) const>
Result MapCase(Runtime& runtime, const Value& self, const BoundArguments&) {
  RETURN_IF_ERROR(runtime.CheckRoom(self.text()->size()));
  return runtime.NewText((runtime.cases().*map)(*self.text()));
}

Result IsUpperCase(Runtime& runtime, const Value& self, const BoundArguments&) {
  RETURN_IF_ERROR(runtime.budget().SpendBytes(2 * self.text()->size()));
  return Value(runtime.cases().IsUpper(*self.text()));
}

Result IsLowerCase(Runtime& runtime, const Value& self, const BoundArguments&) {
  RETURN_IF_ERROR(runtime.budget().SpendBytes(2 * self.text()->size()));
  return Value(runtime.cases().IsLower(*self.text()));
}

// ASCII digits only; Python also takes other scripts'.
Result IsDigits(Runtime& runtime, const Value& self, const BoundArguments&) {
  const std::string& text = *self.text();
  RETURN_IF_ERROR(runtime.budget().SpendBytes(text.size()));
  return Value(!text.empty() && text.find_first_not_of("0123456789") == std::string::npos);
}

Result Replace(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  Replacement replacement;
  ASSIGN_OR_RETURN(replacement.old_text, TextOr(arguments[0], "", "old"));
  ASSIGN_OR_RETURN(replacement.new_text, TextOr(arguments[1], "", "new"));
  ASSIGN_OR_RETURN(replacement.count, IntegerOr(arguments[2], -1, "count"));
  return ReplaceText(runtime, *self.text(), replacement);
}

Result Join(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const List> list, Iterate(runtime, *arguments[0]));
  for (const Value& item : list->items) {
    RETURN_IF_ERROR(TextOr(&item, "", "an item of join").status());
  }
  return JoinTexts(runtime, *self.text(), list->items);
}

template <bool from_right>
Result Find(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  const absl::string_view text = *self.text();
  ASSIGN_OR_RETURN(const absl::string_view wanted, TextOr(arguments[0], "", "sub"));
  RETURN_IF_ERROR(runtime.budget().SpendBytes(from_right ? text.size() * (wanted.size() + 1)
                                                         : text.size() + wanted.size()));
  const size_t at = from_right ? text.rfind(wanted) : FindText(text, wanted);
  if (at == absl::string_view::npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(CountCharacters(text.substr(0, at))));
}

Result CountText(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  const absl::string_view text = *self.text();
  ASSIGN_OR_RETURN(const absl::string_view wanted, TextOr(arguments[0], "", "sub"));
  RETURN_IF_ERROR(runtime.budget().SpendBytes(text.size() + wanted.size()));
  if (wanted.empty()) return Value(static_cast<int64_t>(CountCharacters(text)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = FindText(text, wanted, at)) != absl::string_view::npos;
       at += wanted.size()) {
    ++count;
  }
  return Value(count);
}

// "{} {0} {name}".format(…), without attributes, conversions and format specifications.
Result Format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  absl::string_view text = *self.text();
  TextBuilder out(runtime);
  size_t next = 0;
  while (!text.empty()) {
    const size_t brace = std::min(text.find_first_of("{}"), text.size());
    RETURN_IF_ERROR(out.Append(text.substr(0, brace)));
    text.remove_prefix(brace);
    if (text.empty()) break;
    if (absl::StartsWith(text, "{{") || absl::StartsWith(text, "}}")) {
      RETURN_IF_ERROR(out.Append(text.substr(0, 1)));
      text.remove_prefix(2);
      continue;
    }
    const size_t close = text.find('}');
    if (text[0] == '}' || close == absl::string_view::npos) {
      return absl::InvalidArgumentError("format: single brace");
    }
    const absl::string_view field = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
    const Value* value = nullptr;
    const bool is_number = !field.empty() && field.find_first_not_of("0123456789") == field.npos;
    const size_t index = field.empty()                   ? next++
                         : is_number && field.size() < 4 ? std::stoul(std::string(field))
                                                         : ~size_t{0};
    if (index < arguments.positional.size()) value = &arguments.positional[index];
    for (const auto& [name, named] : arguments.named) {
      if (name == field) value = &named;
    }
    if (value == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("format: no argument for '{", field, "}', or not supported"));
    }
    RETURN_IF_ERROR(runtime.budget().Spend());
    RETURN_IF_ERROR(AppendText(*value, runtime, out));
  }
  return out.TakeValue();
}

// --- Lists.

Result IndexOf(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  const List& list = *self.list();
  for (size_t i = 0; i < list.items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(runtime, list.items[i], *arguments[0]));
    if (equal) return Value(static_cast<int64_t>(i));
  }
  return absl::InvalidArgumentError("index: the item is not in the list");
}

Result CountItem(Runtime& runtime, const Value& self, const BoundArguments& arguments) {
  int64_t count = 0;
  for (const Value& item : self.list()->items) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(runtime, item, *arguments[0]));
    count += equal;
  }
  return Value(count);
}

Result Copy(Runtime&, const Value& self, const BoundArguments&) { return self; }

// --- Dicts.

Result Get(Runtime&, const Value& self, const BoundArguments& arguments) {
  const std::string* key = arguments[0]->text();
  const Value* value = key == nullptr ? nullptr : self.dict()->Find(*key);
  if (value != nullptr) return *value;
  return arguments[1] == nullptr ? Value(None{}) : *arguments[1];
}

Result Items(Runtime& runtime, const Value& self, const BoundArguments&) {
  return DictItems(runtime, *self.dict());
}

Result Keys(Runtime& runtime, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const List> keys, Iterate(runtime, self));
  return Value(keys);
}

Result Values(Runtime& runtime, const Value& self, const BoundArguments&) {
  std::vector<Value> values;
  RETURN_IF_ERROR(runtime.budget().Spend(self.dict()->entries.size()));
  for (const Dict::Entry& entry : self.dict()->entries) values.push_back(entry.value);
  return runtime.NewList(std::move(values));
}

// --- Loops.

Result Cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) return absl::InvalidArgumentError("cycle needs an argument");
  return arguments.positional[self.loop()->index % arguments.positional.size()];
}

constexpr MethodSpec kMethods[] = {
    {Receiver::TEXT, {"split", {"sep", "maxsplit"}}, Split<false>},
    {Receiver::TEXT, {"rsplit", {"sep", "maxsplit"}}, Split<true>},
    {Receiver::TEXT, {"splitlines", {"keepends"}}, SplitIntoLines},
    {Receiver::TEXT, {"strip", {"chars"}}, Strip<Side::BOTH>},
    {Receiver::TEXT, {"lstrip", {"chars"}}, Strip<Side::LEFT>},
    {Receiver::TEXT, {"rstrip", {"chars"}}, Strip<Side::RIGHT>},
    {Receiver::TEXT, {"startswith", {"prefix"}, 1}, HasAnyAffix<false>},
    {Receiver::TEXT, {"endswith", {"suffix"}, 1}, HasAnyAffix<true>},
    {Receiver::TEXT, {"removeprefix", {"prefix"}, 1}, RemoveAffix<false>},
    {Receiver::TEXT, {"removesuffix", {"suffix"}, 1}, RemoveAffix<true>},
    {Receiver::TEXT, {"upper", {}}, MapCase<&CaseMapper::Upper>},
    {Receiver::TEXT, {"lower", {}}, MapCase<&CaseMapper::Lower>},
    {Receiver::TEXT, {"title", {}}, MapCase<&CaseMapper::TitleMethod>},
    {Receiver::TEXT, {"capitalize", {}}, MapCase<&CaseMapper::Capitalize>},
    {Receiver::TEXT, {"isupper", {}}, IsUpperCase},
    {Receiver::TEXT, {"islower", {}}, IsLowerCase},
    {Receiver::TEXT, {"isdigit", {}}, IsDigits},
    {Receiver::TEXT, {"replace", {"old", "new", "count"}, 2}, Replace},
    {Receiver::TEXT, {"join", {"iterable"}, 1}, Join},
    {Receiver::TEXT, {"find", {"sub"}, 1}, Find<false>},
    {Receiver::TEXT, {"rfind", {"sub"}, 1}, Find<true>},
    {Receiver::TEXT, {"count", {"sub"}, 1}, CountText},
    {Receiver::TEXT, {"format", {}}, nullptr, Format},
    {Receiver::LIST, {"index", {"value"}, 1}, IndexOf},
    {Receiver::LIST, {"count", {"value"}, 1}, CountItem},
    {Receiver::LIST, {"copy", {}}, Copy},
    {Receiver::DICT, {"get", {"key", "default"}, 1}, Get},
    {Receiver::DICT, {"items", {}}, Items},
    {Receiver::DICT, {"keys", {}}, Keys},
    {Receiver::DICT, {"values", {}}, Values},
    {Receiver::DICT, {"copy", {}}, Copy},
    {Receiver::LOOP, {"cycle", {}}, nullptr, Cycle},
};

bool Takes(Receiver receiver, const Value& self) {
  switch (receiver) {
    case Receiver::TEXT:
      return self.text() != nullptr;
    case Receiver::LIST:
      return self.list() != nullptr;
    case Receiver::DICT:
      return self.dict() != nullptr;
    case Receiver::LOOP:
      return self.loop() != nullptr;
  }
  return false;
}

}  // namespace

const MethodSpec* FindMethod(const Value& self, absl::string_view name) {
  for (const MethodSpec& spec : kMethods) {
    if (spec.signature.name == name && Takes(spec.receiver, self)) return &spec;
  }
  return nullptr;
}

absl::StatusOr<Value> CallMethod(Runtime& runtime, const Method& method,
                                 const Arguments& arguments) {
  if (method.spec->variadic != nullptr) {
    return method.spec->variadic(runtime, method.self, arguments);
  }
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(method.spec->signature, arguments));
  return method.spec->bound(runtime, method.self, bound);
}

absl::StatusOr<Value> ReplaceText(Runtime& runtime, absl::string_view text,
                                  const Replacement& replacement) {
  const absl::string_view old_text = replacement.old_text;
  if (old_text.empty()) return absl::InvalidArgumentError("replace: the old text is empty");
  RETURN_IF_ERROR(runtime.budget().SpendBytes(text.size() + old_text.size()));
  TextBuilder out(runtime);
  size_t begin = 0;
  for (int64_t count = 0; count != replacement.count; ++count) {
    const size_t at = FindText(text, old_text, begin);
    if (at == absl::string_view::npos) break;
    RETURN_IF_ERROR(out.Append(text.substr(begin, at - begin)));
    RETURN_IF_ERROR(out.Append(replacement.new_text));
    begin = at + old_text.size();
  }
  RETURN_IF_ERROR(out.Append(text.substr(begin)));
  return out.TakeValue();
}

absl::StatusOr<Value> StripText(Runtime& runtime, absl::string_view text, const Value* characters,
                                Side side) {
  if (IsAbsent(characters)) {
    RETURN_IF_ERROR(runtime.budget().SpendBytes(text.size()));
    return runtime.NewText(StripSpace(text, side));
  }
  ASSIGN_OR_RETURN(const absl::string_view stripped, TextOr(characters, "", "chars"));
  RETURN_IF_ERROR(runtime.budget().SpendBytes(text.size() * std::max<size_t>(stripped.size(), 1)));
  return runtime.NewText(StripCharacters(text, stripped, side));
}

absl::StatusOr<Value> DictItems(Runtime& runtime, const Dict& dict) {
  std::vector<Value> items;
  for (const Dict::Entry& entry : dict.entries) {
    ASSIGN_OR_RETURN(items.emplace_back(), runtime.NewTuple({entry.key, entry.value}));
  }
  return runtime.NewList(std::move(items));
}

absl::StatusOr<Value> JoinTexts(Runtime& runtime, absl::string_view separator,
                                const std::vector<Value>& items) {
  TextBuilder out(runtime);
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(runtime.budget().Spend());
    if (i > 0) RETURN_IF_ERROR(out.Append(separator));
    RETURN_IF_ERROR(AppendText(items[i], runtime, out));
  }
  return out.TakeValue();
}

}  // namespace baton::model::jinja
