#include "model/chat_template/printf.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "model/chat_template/operators.h"

namespace baton::model::jinja {
namespace {

struct Conversion {
  absl::string_view key;  // Of %(key)s.
  bool has_key = false;
  std::string flags;
  int width = 0;
  int precision = -1;  // Negative: none.
  char type = '\0';
};

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("% formatting: ", what));
}

// Takes a number from the front of `format`; 0 when there is none.
absl::StatusOr<int> TakeNumber(absl::string_view& format) {
  int number = 0;
  while (!format.empty() && format[0] >= '0' && format[0] <= '9') {
    number = number * 10 + (format[0] - '0');
    if (number > kPrintfFieldMax) {
      return Bad(absl::StrCat("a field is larger than ", kPrintfFieldMax));
    }
    format.remove_prefix(1);
  }
  return number;
}

// Takes what follows a %.
absl::StatusOr<Conversion> TakeConversion(absl::string_view& format) {
  Conversion conversion;
  if (!format.empty() && format[0] == '(') {
    const size_t close = format.find(')');
    if (close == absl::string_view::npos) return Bad("%( is not closed");
    conversion.has_key = true;
    conversion.key = format.substr(1, close - 1);
    format.remove_prefix(close + 1);
  }
  constexpr absl::string_view kFlags = "-+ #0";
  while (!format.empty() && kFlags.find(format[0]) != absl::string_view::npos) {
    if (conversion.flags.find(format[0]) == std::string::npos) conversion.flags += format[0];
    format.remove_prefix(1);
  }
  ASSIGN_OR_RETURN(conversion.width, TakeNumber(format));
  if (!format.empty() && format[0] == '.') {
    format.remove_prefix(1);
    ASSIGN_OR_RETURN(conversion.precision, TakeNumber(format));
  }
  if (format.empty()) return Bad("the format ends in a conversion");
  conversion.type = format[0];
  format.remove_prefix(1);
  return conversion;
}

absl::Status AppendPadded(const Conversion& conversion, absl::string_view text, TextBuilder& out) {
  uint64_t characters = CountCharacters(text);
  if (conversion.precision >= 0 && characters > static_cast<uint64_t>(conversion.precision)) {
    characters = static_cast<uint64_t>(conversion.precision);
    text = SubstringOfCharacters(text, 0, characters);
  }
  const uint64_t width = static_cast<uint64_t>(conversion.width);
  const uint64_t padding = width > characters ? width - characters : 0;
  const bool is_left = conversion.flags.find('-') != std::string::npos;
  if (!is_left) RETURN_IF_ERROR(out.AppendRepeated(" ", padding));
  RETURN_IF_ERROR(out.Append(text));
  return is_left ? out.AppendRepeated(" ", padding) : absl::OkStatus();
}

template <typename T>
absl::Status AppendNumber(const Conversion& conversion, absl::string_view type, T number,
                          TextBuilder& out) {
  std::string format = absl::StrCat("%", conversion.flags);
  if (conversion.width > 0) absl::StrAppend(&format, conversion.width);
  if (conversion.precision >= 0) absl::StrAppend(&format, ".", conversion.precision);
  absl::StrAppend(&format, type);
  // The largest double has 309 digits before the point.
  std::string buffer(2 * kPrintfFieldMax + 400, '\0');
  const int written = std::snprintf(buffer.data(), buffer.size(), format.c_str(), number);
  if (written < 0 || static_cast<size_t>(written) >= buffer.size())
    return Bad("the field is too long");
  return out.Append(absl::string_view(buffer).substr(0, static_cast<size_t>(written)));
}

absl::Status AppendConversion(const Conversion& conversion, const Value& value, Runtime& runtime,
                              TextBuilder& out) {
  const auto wrong_type = [&] {
    return Bad(
        absl::StrCat("%", std::string(1, conversion.type), " cannot show a ", value.type_name()));
  };
  switch (conversion.type) {
    case 's': {
      ASSIGN_OR_RETURN(const Value text, ToText(runtime, value));
      return AppendPadded(conversion, *text.text(), out);
    }
    case 'r': {
      ASSIGN_OR_RETURN(const Value text, Represent(runtime, value));
      return AppendPadded(conversion, *text.text(), out);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      if (!IsNumber(value)) return wrong_type();
      const bool is_decimal =
          conversion.type == 'd' || conversion.type == 'i' || conversion.type == 'u';
      if (value.real() && (!is_decimal || !(*value.real() > -9.2e18 && *value.real() < 9.2e18))) {
        return wrong_type();
      }
      const long long number =
          value.integer() ? *value.integer() : static_cast<long long>(ToReal(value));
      if (!is_decimal && number < 0) return Bad("a negative number has no such form here");
      return AppendNumber(conversion,
                          is_decimal ? "lld" : absl::StrCat("ll", std::string(1, conversion.type)),
                          number, out);
    }
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
      if (!IsNumber(value)) return wrong_type();
      return AppendNumber(conversion, std::string(1, conversion.type), ToReal(value), out);
    default:
      return Bad(
          absl::StrCat("conversion %", std::string(1, conversion.type), " is not supported"));
  }
}

}  // namespace

absl::StatusOr<Value> Printf(Runtime& runtime, absl::string_view format,
                             absl::Span<const Value> arguments) {
  const Dict* dict = arguments.size() == 1 ? arguments[0].dict() : nullptr;
  TextBuilder out(runtime);
  size_t used = 0;
  while (!format.empty()) {
    const size_t percent = std::min(format.find('%'), format.size());
    RETURN_IF_ERROR(out.Append(format.substr(0, percent)));
    format.remove_prefix(percent);
    if (format.empty()) break;
    format.remove_prefix(1);
    ASSIGN_OR_RETURN(const Conversion conversion, TakeConversion(format));
    RETURN_IF_ERROR(runtime.budget().Spend());
    if (conversion.type == '%') {
      RETURN_IF_ERROR(out.Append("%"));
      continue;
    }
    const Value* value = nullptr;
    if (conversion.has_key) {
      if (dict == nullptr) return Bad("%(…) needs a dict");
      used = 1;
      value = dict->Find(conversion.key);
    } else if (used < arguments.size()) {
      value = &arguments[used++];
    }
    if (value == nullptr) return Bad("an argument is missing");
    RETURN_IF_ERROR(AppendConversion(conversion, *value, runtime, out));
  }
  if (used < arguments.size() && dict == nullptr) return Bad("not all arguments were used");
  return out.TakeValue();
}

}  // namespace baton::model::jinja
