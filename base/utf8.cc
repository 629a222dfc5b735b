#include "base/utf8.h"

#include <cstring>

#include "base/check.h"

namespace baton::base {
namespace {

// Table 3-7 of the Unicode standard: what the first byte promises. Only the second byte's range
// varies.
struct Lead {
  uint32_t byte_count;  // 0: never a first byte.
  uint8_t second_min, second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) {
    return {3, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Character ReadUtf8Character(absl::string_view bytes) {
  CHECK(!bytes.empty());
  const uint8_t first = static_cast<uint8_t>(bytes[0]);
  const Lead lead = LeadOf(first);
  if (lead.byte_count == 0) return {Utf8State::INVALID, 1, 0};
  if (lead.byte_count == 1) return {Utf8State::VALID, 1, first};
  char32_t code_point = first & (0x7F >> lead.byte_count);
  for (uint32_t i = 1; i < lead.byte_count; ++i) {
    if (i == bytes.size()) return {Utf8State::INCOMPLETE, i, 0};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8State::INVALID, i, 0};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Utf8State::VALID, lead.byte_count, code_point};
}

size_t FindInvalidUtf8(absl::string_view bytes) {
  size_t offset = 0;
  while (offset < bytes.size()) {
    uint64_t eight = 0;
    if (offset + sizeof(eight) <= bytes.size()) {  // Mostly ASCII.
      std::memcpy(&eight, bytes.data() + offset, sizeof(eight));
      if ((eight & 0x8080808080808080) == 0) {
        offset += sizeof(eight);
        continue;
      }
    }
    const Utf8Character character = ReadUtf8Character(bytes.substr(offset));
    if (character.state != Utf8State::VALID) return offset;
    offset += character.byte_count;
  }
  return absl::string_view::npos;
}

void AppendUtf8(char32_t code_point, std::string& text) {
  CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF))
      << static_cast<uint32_t>(code_point);
  const auto continuation = [&](int shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    text += continuation(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    text += continuation(6);
    text += continuation(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    text += continuation(12);
    text += continuation(6);
    text += continuation(0);
  }
}

}  // namespace baton::base
