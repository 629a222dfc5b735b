#include "model/chat_template/functions.h"

#include <array>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/chat_template/operators.h"

namespace baton::model::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result MakeRange(Runtime& runtime, const Arguments& arguments) {
  constexpr Signature kSignature = {"range", {"start", "stop", "step"}, 1};
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(kSignature, arguments));
  ASSIGN_OR_RETURN(int64_t start, IntegerOr(bound[0], 0, "start"));
  ASSIGN_OR_RETURN(int64_t stop, IntegerOr(bound[1], 0, "stop"));
  ASSIGN_OR_RETURN(const int64_t step, IntegerOr(bound[2], 1, "step"));
  if (bound[1] == nullptr) std::swap(start, stop);
  if (step == 0) return absl::InvalidArgumentError("range: step must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == kRangeMax) {
      return absl::ResourceExhaustedError(absl::StrCat("range: more than ", kRangeMax, " numbers"));
    }
    RETURN_IF_ERROR(runtime.budget().Spend());
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return runtime.NewList(std::move(items));
}

Result MakeDict(Runtime& runtime, const Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  for (const Value& argument : arguments.positional) {
    if (argument.dict() == nullptr || arguments.positional.size() > 1) {
      return absl::InvalidArgumentError("dict takes one dict and named arguments");
    }
    RETURN_IF_ERROR(runtime.CheckRoom(argument.dict()->entries.size() * Dict::kEntryBytes));
    RETURN_IF_ERROR(runtime.budget().Spend(argument.dict()->entries.size()));
    for (const Dict::Entry& entry : argument.dict()->entries) dict->Set(entry.key, entry.value);
  }
  for (const auto& [name, value] : arguments.named) {
    ASSIGN_OR_RETURN(Value key, runtime.NewText(name));
    dict->Set(std::move(key), value);
  }
  return runtime.NewDict(std::move(dict));
}

Result MakeNamespace(Runtime& runtime, const Arguments& arguments) {
  ASSIGN_OR_RETURN(Namespace* const space, runtime.NewNamespace());
  for (const Value& argument : arguments.positional) {
    if (argument.dict() == nullptr) {
      return absl::InvalidArgumentError("namespace takes dicts and named arguments");
    }
    for (const Dict::Entry& entry : argument.dict()->entries) {
      RETURN_IF_ERROR(runtime.SetAttribute(*space, *entry.key.text(), entry.value));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    RETURN_IF_ERROR(runtime.SetAttribute(*space, name, value));
  }
  return Value(space);
}

Result RaiseException(Runtime& runtime, const Arguments& arguments) {
  constexpr Signature kSignature = {"raise_exception", {"message"}, 1};
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(kSignature, arguments));
  ASSIGN_OR_RETURN(const Value message, ToText(runtime, *bound[0]));
  runtime.set_refused();
  return absl::InvalidArgumentError(*message.text());
}

Result FormatNow(Runtime& runtime, const Arguments& arguments) {
  constexpr Signature kSignature = {"strftime_now", {"format"}, 1};
  constexpr size_t kResultBytesMax = 1024;
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(kSignature, arguments));
  ASSIGN_OR_RETURN(const absl::string_view format, TextOr(bound[0], "", "format"));
  if (format.empty()) return runtime.NewText(std::string());
  const std::tm now = absl::ToTM(runtime.now(), absl::UTCTimeZone());
  std::array<char, kResultBytesMax> result;
  const size_t bytes =
      std::strftime(result.data(), result.size(), std::string(format).c_str(), &now);
  if (bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("strftime_now: the result is empty or longer than ", kResultBytesMax - 1));
  }
  return runtime.NewText(absl::string_view(result.data(), bytes));
}

constexpr Function kFunctions[] = {
    {"range", MakeRange},         {"dict", MakeDict},
    {"namespace", MakeNamespace}, {"raise_exception", RaiseException},
    {"strftime_now", FormatNow},
};

}  // namespace

const Function* FindFunction(absl::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace baton::model::jinja
