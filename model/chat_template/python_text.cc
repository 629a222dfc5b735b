#include "model/chat_template/python_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cwctype>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/utf8.h"

namespace baton::model::jinja {
namespace {

using base::AppendUtf8;
using base::ReadUtf8Character;
using base::Utf8Character;

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The last character of `text`. REQUIRES: not empty.
Utf8Character LastCharacter(absl::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && IsContinuation(text[begin])) --begin;
  return ReadUtf8Character(text.substr(begin));
}

template <typename Predicate>
absl::string_view StripWhile(absl::string_view text, Side side, Predicate stripped) {
  while (side != Side::RIGHT && !text.empty()) {
    const Utf8Character first = ReadUtf8Character(text);
    if (!stripped(first.code_point)) break;
    text.remove_prefix(first.byte_count);
  }
  while (side != Side::LEFT && !text.empty()) {
    const Utf8Character last = LastCharacter(text);
    if (!stripped(last.code_point)) break;
    text.remove_suffix(last.byte_count);
  }
  return text;
}

bool Contains(absl::string_view characters, char32_t code_point) {
  while (!characters.empty()) {
    const Utf8Character character = ReadUtf8Character(characters);
    if (character.code_point == code_point) return true;
    characters.remove_prefix(character.byte_count);
  }
  return false;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// What repr() shows as an escape: controls, format characters, separators, private use and
// non-characters. Unassigned code points are taken as printable, since that depends on a version of
// Unicode.
bool IsPrintable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c != ' ' && IsPythonSpace(c)) return false;
  const bool is_format = (c >= 0x600 && c <= 0x605) || c == 0x61C || c == 0x6DD || c == 0x70F ||
                         c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
                         (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
                         c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
                         (c >= 0xE0001 && c <= 0xE007F);
  const bool is_private = (c >= 0xE000 && c <= 0xF8FF) || c >= 0xF0000;
  const bool is_non_character = (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF);
  return !is_format && !is_private && !is_non_character;
}

template <typename Map>
std::string MapCharacters(absl::string_view text, Map map) {
  std::string mapped;
  mapped.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = ReadUtf8Character(text);
    AppendUtf8(map(character.code_point), mapped);
    text.remove_prefix(character.byte_count);
  }
  return mapped;
}

}  // namespace

bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

absl::string_view StripSpace(absl::string_view text, Side side) {
  return StripWhile(text, side, IsPythonSpace);
}

absl::string_view StripCharacters(absl::string_view text, absl::string_view stripped, Side side) {
  return StripWhile(text, side, [&](char32_t c) { return Contains(stripped, c); });
}

uint64_t CountCharacters(absl::string_view text) {
  uint64_t count = 0;
  for (const char byte : text) count += !IsContinuation(byte);
  return count;
}

absl::string_view SubstringOfCharacters(absl::string_view text, uint64_t begin, uint64_t end) {
  const auto offset_of = [&](size_t from, uint64_t characters) {
    size_t offset = from;
    for (; characters > 0; --characters) {
      CHECK_LT(offset, text.size());
      do {
        ++offset;
      } while (offset < text.size() && IsContinuation(text[offset]));
    }
    return offset;
  };
  const size_t first = offset_of(0, begin);
  return text.substr(first, offset_of(first, end - begin) - first);
}

size_t FindText(absl::string_view text, absl::string_view wanted, size_t from) {
  if (from > text.size()) return absl::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return absl::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

absl::Status VisitCharacters(absl::string_view text, PieceVisitor visit) {
  while (!text.empty()) {
    const uint32_t bytes = ReadUtf8Character(text).byte_count;
    RETURN_IF_ERROR(visit(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  }
  return absl::OkStatus();
}

absl::Status SplitAtSpace(absl::string_view text, SplitOptions options, PieceVisitor visit) {
  const Side near = options.from_right ? Side::RIGHT : Side::LEFT;
  text = StripSpace(text, near);
  for (int64_t splits = 0; !text.empty(); ++splits) {
    if (splits == options.splits_max) return visit(text);
    absl::string_view rest = text;
    while (!rest.empty()) {
      const Utf8Character next = options.from_right ? LastCharacter(rest) : ReadUtf8Character(rest);
      if (IsPythonSpace(next.code_point)) break;
      options.from_right ? rest.remove_suffix(next.byte_count)
                         : rest.remove_prefix(next.byte_count);
    }
    const size_t piece = text.size() - rest.size();
    RETURN_IF_ERROR(visit(options.from_right ? text.substr(rest.size()) : text.substr(0, piece)));
    text = StripSpace(rest, near);
  }
  return absl::OkStatus();
}

absl::Status SplitAt(absl::string_view text, absl::string_view separator, SplitOptions options,
                     PieceVisitor visit) {
  CHECK(!separator.empty());
  for (int64_t splits = 0; splits != options.splits_max; ++splits) {
    const size_t at = options.from_right ? text.rfind(separator) : FindText(text, separator);
    if (at == absl::string_view::npos) break;
    const absl::string_view left = text.substr(0, at), right = text.substr(at + separator.size());
    RETURN_IF_ERROR(visit(options.from_right ? right : left));
    text = options.from_right ? left : right;
  }
  return visit(text);
}

absl::Status SplitLines(absl::string_view text, bool keep_ends, PieceVisitor visit) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = ReadUtf8Character(text.substr(at));
    size_t next = at + character.byte_count;
    if (!IsLineEnd(character.code_point)) {
      at = next;
      continue;
    }
    if (absl::StartsWith(text.substr(at), "\r\n")) ++next;
    RETURN_IF_ERROR(visit(text.substr(begin, (keep_ends ? next : at) - begin)));
    begin = at = next;
  }
  return begin < text.size() ? visit(text.substr(begin)) : absl::OkStatus();
}

CaseMapper::CaseMapper() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
  CHECK(locale_ != nullptr) << "the C library has no C.UTF-8 locale, which is built into glibc";
}

CaseMapper::~CaseMapper() { freelocale(locale_); }

char32_t CaseMapper::Upper(char32_t code_point) const {
  return static_cast<char32_t>(towupper_l(static_cast<wint_t>(code_point), locale_));
}

char32_t CaseMapper::Lower(char32_t code_point) const {
  return static_cast<char32_t>(towlower_l(static_cast<wint_t>(code_point), locale_));
}

std::string CaseMapper::Upper(absl::string_view text) const {
  return MapCharacters(text, [&](char32_t c) { return Upper(c); });
}

std::string CaseMapper::Lower(absl::string_view text) const {
  return MapCharacters(text, [&](char32_t c) { return Lower(c); });
}

std::string CaseMapper::Capitalize(absl::string_view text) const {
  bool first = true;
  return MapCharacters(
      text, [&](char32_t c) { return std::exchange(first, false) ? Upper(c) : Lower(c); });
}

std::string CaseMapper::TitleMethod(absl::string_view text) const {
  bool in_word = false;
  return MapCharacters(
      text, [&](char32_t c) { return std::exchange(in_word, IsCased(c)) ? Lower(c) : Upper(c); });
}

std::string CaseMapper::TitleFilter(absl::string_view text) const {
  bool in_word = false;
  return MapCharacters(text, [&](char32_t c) {
    const bool between =
        IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    return std::exchange(in_word, !between) ? Lower(c) : Upper(c);
  });
}

bool CaseMapper::IsUpper(absl::string_view text) const {
  return Upper(text) == text && Lower(text) != text;
}

bool CaseMapper::IsLower(absl::string_view text) const {
  return Lower(text) == text && Upper(text) != text;
}

std::string FloatToText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;  // The shortest form has at most 24 characters.
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::scientific);
  const absl::string_view scientific(buffer.data(),
                                     static_cast<size_t>(written.ptr - buffer.data()));
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(std::string(scientific.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  std::array<char, 64> fixed;
  const auto end =
      std::to_chars(fixed.data(), fixed.data() + fixed.size(), value, std::chars_format::fixed);
  std::string text(fixed.data(), end.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string QuoteText(absl::string_view text) {
  const char quote = absl::StrContains(text, '\'') && !absl::StrContains(text, '"') ? '"' : '\'';
  std::string quoted(1, quote);
  while (!text.empty()) {
    const Utf8Character character = ReadUtf8Character(text);
    const char32_t c = character.code_point;
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      quoted += '\\';
      quoted += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      quoted += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(c)) {
      quoted.append(text.data(), character.byte_count);
    } else if (c < 0x100) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      absl::StrAppendFormat(&quoted, "\\U%08x", static_cast<uint32_t>(c));
    }
    text.remove_prefix(character.byte_count);
  }
  return quoted + quote;
}

std::string EscapeHtml(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&#34;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace baton::model::jinja
