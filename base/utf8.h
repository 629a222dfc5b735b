// UTF-8 as the Unicode standard defines it: no overlong forms, no surrogates, nothing above
// U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace baton::base {

enum class Utf8State {
  VALID,       // A whole character.
  INCOMPLETE,  // The bytes end inside a character that may still become valid.
  INVALID,     // No continuation makes a character of these bytes.
};

struct Utf8Character {
  Utf8State state;
  // Bytes of the character; if INCOMPLETE all of the bytes; if INVALID those which one U+FFFD
  // stands for (the "maximal subpart" of the standard, at least 1).
  uint32_t byte_count;
  char32_t code_point;  // If VALID.
};

// U+FFFD, which stands for what is not valid.
inline constexpr absl::string_view kUtf8Replacement = "\xEF\xBF\xBD";

// The character at the start of `bytes`. REQUIRES: not empty.
Utf8Character ReadUtf8Character(absl::string_view bytes);

// Offset of the first byte that is not part of a valid character, or npos.
size_t FindInvalidUtf8(absl::string_view bytes);

// REQUIRES: a code point that UTF-8 can carry.
void AppendUtf8(char32_t code_point, std::string& text);

}  // namespace baton::base
