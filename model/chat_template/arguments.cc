#include "model/chat_template/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton::model::jinja {

absl::StatusOr<BoundArguments> Bind(const Signature& signature, const Arguments& arguments) {
  BoundArguments bound{};
  const auto& parameters = signature.parameters;
  const size_t count = static_cast<size_t>(
      std::find(parameters.begin(), parameters.end(), absl::string_view()) - parameters.begin());
  if (arguments.positional.size() > count) {
    return absl::InvalidArgumentError(absl::StrCat(
        signature.name, " takes at most ", count, " arguments, got ", arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto parameter = std::find(parameters.begin(), parameters.begin() + count, name);
    const size_t i = static_cast<size_t>(parameter - parameters.begin());
    if (i == count || bound[i] != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          signature.name, i == count ? " has no argument '" : " got twice argument '", name, "'"));
    }
    bound[i] = &value;
  }
  for (size_t i = 0; i < signature.required_count; ++i) {
    if (bound[i] == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(signature.name, " needs the argument '", parameters[i], "'"));
    }
  }
  return bound;
}

absl::StatusOr<int64_t> IntegerOr(const Value* argument, int64_t absent, absl::string_view name) {
  if (argument == nullptr) return absent;
  if (const int64_t* integer = argument->integer()) return *integer;
  if (const bool* boolean = argument->boolean()) return *boolean ? 1 : 0;
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be an integer, is ", argument->type_name()));
}

absl::StatusOr<absl::string_view> TextOr(const Value* argument, absl::string_view absent,
                                         absl::string_view name) {
  if (argument == nullptr) return absent;
  if (const std::string* text = argument->text()) return absl::string_view(*text);
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be a string, is ", argument->type_name()));
}

}  // namespace baton::model::jinja
