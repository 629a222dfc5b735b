#include "model/chat_template/json_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/utf8.h"

namespace baton::model::jinja {
namespace {

void AppendEscaped(absl::string_view text, bool ascii_only, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const base::Utf8Character character = base::ReadUtf8Character(text);
    const char32_t c = character.code_point;
    constexpr absl::string_view kPlain = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const size_t letter = c < 0x80 ? kPlain.find(static_cast<char>(c)) : absl::string_view::npos;
    if (letter != absl::string_view::npos) {
      out += '\\';
      out += kLetters[letter];
    } else if (c >= 0x20 && (c < 0x7F || !ascii_only)) {
      out.append(text.data(), character.byte_count);
    } else if (c < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      const uint32_t offset = static_cast<uint32_t>(c) - 0x10000;
      absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD800 + (offset >> 10),
                            0xDC00 + (offset & 0x3FF));
    }
    text.remove_prefix(character.byte_count);
  }
  out += '"';
}

class Writer {
 public:
  Writer(const JsonStyle& style, Runtime& runtime, TextBuilder& out)
      : style_(style), runtime_(runtime), out_(out) {}

  absl::Status Write(const Value& value) {
    RETURN_IF_ERROR(runtime_.budget().Spend());
    if (value.text()) return WriteText(*value.text());
    if (value.list()) return WriteList(*value.list());
    if (value.dict()) return WriteDict(*value.dict());
    if (value.is_none()) return out_.Append("null");
    if (value.boolean()) return out_.Append(*value.boolean() ? "true" : "false");
    if (value.integer()) return out_.Append(absl::StrCat(*value.integer()));
    if (value.real()) return WriteReal(*value.real());
    return absl::InvalidArgumentError(
        absl::StrCat("a value of type ", value.type_name(), " has no JSON form"));
  }

 private:
  absl::Status WriteText(absl::string_view text) {
    RETURN_IF_ERROR(runtime_.CheckRoom(text.size()));
    std::string escaped;
    AppendEscaped(text, style_.ascii_only, escaped);
    return out_.Append(escaped);
  }

  absl::Status WriteReal(double real) {
    if (std::isnan(real)) return out_.Append("NaN");
    if (std::isinf(real)) return out_.Append(real < 0 ? "-Infinity" : "Infinity");
    return out_.Append(FloatToText(real));
  }

  absl::Status NewLine() {
    if (!style_.indent) return absl::OkStatus();
    RETURN_IF_ERROR(out_.Append("\n"));
    return out_.AppendRepeated(" ", static_cast<uint64_t>(*style_.indent) * depth_);
  }

  absl::Status WriteList(const List& list) {
    if (list.items.empty()) return out_.Append("[]");
    RETURN_IF_ERROR(out_.Append("["));
    ++depth_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(out_.Append(style_.item_separator));
      RETURN_IF_ERROR(NewLine());
      RETURN_IF_ERROR(Write(list.items[i]));
    }
    --depth_;
    RETURN_IF_ERROR(NewLine());
    return out_.Append("]");
  }

  absl::Status WriteDict(const Dict& dict) {
    if (dict.entries.empty()) return out_.Append("{}");
    RETURN_IF_ERROR(runtime_.CheckRoom(dict.entries.size() * sizeof(const Dict::Entry*)));
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      RETURN_IF_ERROR(runtime_.budget().Spend(entries.size() * 16));
      std::sort(entries.begin(), entries.end(), [](const Dict::Entry* a, const Dict::Entry* b) {
        return *a->key.text() < *b->key.text();
      });
    }
    RETURN_IF_ERROR(out_.Append("{"));
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(out_.Append(style_.item_separator));
      RETURN_IF_ERROR(NewLine());
      RETURN_IF_ERROR(WriteText(*entries[i]->key.text()));
      RETURN_IF_ERROR(out_.Append(style_.key_separator));
      RETURN_IF_ERROR(Write(entries[i]->value));
    }
    --depth_;
    RETURN_IF_ERROR(NewLine());
    return out_.Append("}");
  }

  const JsonStyle& style_;
  Runtime& runtime_;
  TextBuilder& out_;
  uint64_t depth_ = 0;
};

}  // namespace

absl::Status AppendJson(const Value& value, const JsonStyle& style, Runtime& runtime,
                        TextBuilder& out) {
  return Writer(style, runtime, out).Write(value);
}

}  // namespace baton::model::jinja
