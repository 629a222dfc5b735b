#include "model/chat_template/lexer.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "model/chat_template/python_text.h"

namespace baton::model::jinja {
namespace {

// Longest first.
constexpr absl::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// Every line end as \n, and none at the end.
std::string NormalizeLineEnds(absl::string_view source) {
  std::string normal;
  normal.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    normal += source[i] == '\r' ? '\n' : source[i];
  }
  if (absl::EndsWith(normal, "\n")) normal.pop_back();
  return normal;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(NormalizeLineEnds(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (offset_ < source_.size()) RETURN_IF_ERROR(LexTextAndTag());
    Emit(TokenKind::END, "", PositionAt(source_.size()));
    return std::move(tokens_);
  }

 private:
  absl::string_view Rest() const { return absl::string_view(source_).substr(offset_); }
  bool NextIs(absl::string_view text) const { return absl::StartsWith(Rest(), text); }

  void Emit(TokenKind kind, std::string text, Position position) {
    tokens_.push_back({kind, std::move(text), position});
  }

  // Offsets are asked for in ascending order, so that one walk over the source serves them all.
  Position PositionAt(size_t offset) {
    for (; position_offset_ < offset; ++position_offset_) {
      const unsigned char byte = static_cast<unsigned char>(source_[position_offset_]);
      if (byte == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((byte & 0xC0) != 0x80) {
        ++position_.column;
      }
    }
    return position_;
  }

  // The text up to the next tag, and that tag.
  absl::Status LexTextAndTag() {
    const size_t text_begin = offset_;
    const size_t tag = FindTag();
    const Position text_position = PositionAt(text_begin);
    if (tag == std::string::npos) {
      offset_ = source_.size();
      EmitText(absl::string_view(source_).substr(text_begin), text_position);
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    offset_ = tag + 2;
    const char sign = TakeSign();
    const absl::string_view text = absl::string_view(source_).substr(text_begin, tag - text_begin);
    EmitText(StripBeforeTag(text, sign, kind != '{'), text_position);
    const Position position = PositionAt(tag);
    if (kind == '#') return SkipComment(position);
    if (kind == '%' && TakeRawBegin()) return LexRaw(position);
    return LexTag(kind == '%', position);
  }

  size_t FindTag() const {
    for (size_t at = offset_; (at = source_.find('{', at)) != std::string::npos; ++at) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  // A - or + right after a tag's opening; '\0' when there is none.
  char TakeSign() {
    if (!NextIs("-") && !NextIs("+")) return '\0';
    return source_[offset_++];
  }

  void EmitText(absl::string_view text, Position position) {
    if (!text.empty()) Emit(TokenKind::TEXT, std::string(text), position);
  }

  // `{%-` takes all white space before it; `{%` takes what indents it, if nothing else stands on
  // its line.
  absl::string_view StripBeforeTag(absl::string_view text, char sign, bool strips_indent) const {
    if (sign == '-') return StripSpace(text, Side::RIGHT);
    if (sign == '+' || !strips_indent) return text;
    const size_t newline = text.rfind('\n');
    if (newline == absl::string_view::npos && !at_line_start_) return text;
    const size_t line = newline == absl::string_view::npos ? 0 : newline + 1;
    return StripSpace(text.substr(line), Side::LEFT).empty() ? text.substr(0, line) : text;
  }

  // Takes the closing `close` with its sign. `-` takes all white space after it; a block or comment
  // without a sign takes one newline.
  bool TakeClose(absl::string_view close, bool trims_newline) {
    const size_t begin = offset_;
    const char sign = (NextIs("-") || (NextIs("+") && trims_newline)) ? source_[offset_] : '\0';
    if (sign != '\0') ++offset_;
    if (!NextIs(close)) {
      offset_ = begin;
      return false;
    }
    offset_ += close.size();
    if (sign == '-') {
      offset_ = source_.size() - StripSpace(Rest(), Side::LEFT).size();
    } else if (sign == '\0' && trims_newline && NextIs("\n")) {
      ++offset_;
    }
    at_line_start_ = source_[offset_ - 1] == '\n';
    return true;
  }

  absl::Status SkipComment(Position position) {
    const size_t close = source_.find("#}", offset_);
    if (close == std::string::npos) return SyntaxError(position, "comment is not closed by #}");
    const char before = close > offset_ ? source_[close - 1] : '\0';
    offset_ = before == '-' || before == '+' ? close - 1 : close;
    TakeClose("#}", true);
    return absl::OkStatus();
  }

  // `raw %}` after `{%`.
  bool TakeRawBegin() {
    const size_t begin = offset_;
    SkipSpace();
    if (NextIs("raw")) {
      offset_ += 3;
      SkipSpace();
      if (TakeClose("%}", false)) return true;
    }
    offset_ = begin;
    return false;
  }

  absl::Status LexRaw(Position position) {
    const size_t text_begin = offset_;
    const Position text_position = PositionAt(text_begin);
    for (size_t tag = offset_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      offset_ = tag + 2;
      const char sign = TakeSign();
      SkipSpace();
      if (!NextIs("endraw")) continue;
      offset_ += 6;
      SkipSpace();
      const absl::string_view text = StripBeforeTag(
          absl::string_view(source_).substr(text_begin, tag - text_begin), sign, true);
      if (!TakeClose("%}", true)) continue;
      EmitText(text, text_position);
      return absl::OkStatus();
    }
    return SyntaxError(position, "raw is not closed by endraw");
  }

  void SkipSpace() { offset_ = source_.size() - StripSpace(Rest(), Side::LEFT).size(); }

  absl::Status LexTag(bool is_block, Position position) {
    Emit(is_block ? TokenKind::BLOCK_BEGIN : TokenKind::VARIABLE_BEGIN, is_block ? "{%" : "{{",
         position);
    const absl::string_view close = is_block ? "%}" : "}}";
    std::string open_brackets;
    while (true) {
      SkipSpace();
      const Position here = PositionAt(offset_);
      if (offset_ >= source_.size()) {
        return SyntaxError(position,
                           absl::StrCat(is_block ? "{%" : "{{", " is not closed by ", close));
      }
      if (open_brackets.empty() && TakeClose(close, is_block)) {
        Emit(is_block ? TokenKind::BLOCK_END : TokenKind::VARIABLE_END, std::string(close), here);
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(LexToken(here, open_brackets));
    }
  }

  absl::Status LexToken(Position position, std::string& open_brackets) {
    const char first = source_[offset_];
    if (IsDigit(first)) return LexNumber(position);
    if (first == '\'' || first == '"') return LexString(position);
    if (IsNameStart(first)) {
      const size_t begin = offset_;
      while (offset_ < source_.size() && IsNamePart(source_[offset_])) ++offset_;
      Emit(TokenKind::NAME, source_.substr(begin, offset_ - begin), position);
      return absl::OkStatus();
    }
    for (const absl::string_view op : kOperators) {
      if (!NextIs(op)) continue;
      RETURN_IF_ERROR(Balance(op[0], position, open_brackets));
      offset_ += op.size();
      Emit(TokenKind::OPERATOR, std::string(op), position);
      return absl::OkStatus();
    }
    return SyntaxError(position, absl::StrCat("unexpected character '", Rest().substr(0, 1), "'"));
  }

  // Inside brackets, }} ends a dict and not the tag.
  static absl::Status Balance(char op, Position position, std::string& open_brackets) {
    constexpr absl::string_view kOpen = "([{", kClose = ")]}";
    if (const size_t open = kOpen.find(op); open != absl::string_view::npos) {
      open_brackets += kClose[open];
    } else if (kClose.find(op) != absl::string_view::npos) {
      if (open_brackets.empty() || open_brackets.back() != op) {
        return SyntaxError(position, absl::StrCat("unexpected '", std::string(1, op), "'"));
      }
      open_brackets.pop_back();
    }
    return absl::OkStatus();
  }

  void SkipDigits() {
    while (offset_ < source_.size() &&
           (IsDigit(source_[offset_]) || (source_[offset_] == '_' && offset_ + 1 < source_.size() &&
                                          IsDigit(source_[offset_ + 1])))) {
      ++offset_;
    }
  }

  absl::Status LexNumber(Position position) {
    const size_t begin = offset_;
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::OPERATOR &&
                           tokens_.back().text == ".";
    TokenKind kind = TokenKind::INTEGER;
    SkipDigits();
    const auto digit_at = [&](size_t at) { return at < source_.size() && IsDigit(source_[at]); };
    if (!after_dot) {
      if (NextIs(".") && digit_at(offset_ + 1)) {
        kind = TokenKind::FLOAT;
        ++offset_;
        SkipDigits();
      }
      if (NextIs("e") || NextIs("E")) {
        size_t digits = offset_ + 1;
        if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) {
          ++digits;
        }
        if (digit_at(digits)) {
          kind = TokenKind::FLOAT;
          offset_ = digits;
          SkipDigits();
        }
      }
    }
    std::string text = source_.substr(begin, offset_ - begin);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Emit(kind, std::move(text), position);
    return absl::OkStatus();
  }

  absl::Status LexString(Position position) {
    const char quote = source_[offset_++];
    std::string value;
    while (offset_ < source_.size() && source_[offset_] != quote) {
      if (source_[offset_] == '\\') {
        RETURN_IF_ERROR(LexEscape(value));
      } else {
        value += source_[offset_++];
      }
    }
    if (offset_ >= source_.size()) return SyntaxError(position, "string is not closed");
    ++offset_;
    Emit(TokenKind::STRING, std::move(value), position);
    return absl::OkStatus();
  }

  absl::Status LexEscape(std::string& value) {
    constexpr absl::string_view kLetters = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
    const Position position = PositionAt(offset_);
    ++offset_;
    if (offset_ >= source_.size()) return SyntaxError(position, "string is not closed");
    const char letter = source_[offset_];
    if (const size_t known = kLetters.find(letter); known != absl::string_view::npos) {
      value += kValues[known];
      ++offset_;
      return absl::OkStatus();
    }
    if (letter == '\n') {
      ++offset_;
      return absl::OkStatus();
    }
    if (letter == 'x' || letter == 'u' || letter == 'U') {
      ++offset_;
      return LexCodePoint(letter == 'x' ? 2 : letter == 'u' ? 4 : 8, 16, true, position, value);
    }
    if (letter >= '0' && letter <= '7') return LexCodePoint(3, 8, false, position, value);
    if (letter == 'N') return SyntaxError(position, "\\N{…} is not supported");
    value += '\\';  // Python keeps what it does not know.
    return absl::OkStatus();
  }

  // `all_digits`: exactly `digits_max` of them.
  absl::Status LexCodePoint(int digits_max, int base, bool all_digits, Position position,
                            std::string& value) {
    char32_t code_point = 0;
    int digits = 0;
    for (; digits < digits_max && offset_ < source_.size(); ++digits, ++offset_) {
      const char c = source_[offset_];
      const int digit = IsDigit(c)             ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : base;
      if (digit >= base) break;
      code_point = code_point * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
    }
    if ((all_digits && digits < digits_max) || code_point > 0x10FFFF ||
        (code_point >= 0xD800 && code_point <= 0xDFFF)) {
      return SyntaxError(position, "escape in a string is not a Unicode character");
    }
    base::AppendUtf8(code_point, value);
    return absl::OkStatus();
  }

  const std::string source_;
  size_t offset_ = 0;
  bool at_line_start_ = true;  // The last tag ended with a newline, or there was none yet.
  size_t position_offset_ = 0;
  Position position_;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  return Lexer(source).Run();
}

}  // namespace baton::model::jinja
