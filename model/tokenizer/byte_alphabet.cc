#include "model/tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace baton::model {
namespace {

// Printable Latin-1 stands for itself; the other 68 bytes follow in order from U+0100.
constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr uint32_t kCharacterCount = 0x100 + 68;

struct Alphabet {
  std::array<uint16_t, 256> character_of_byte{};
  std::array<int16_t, kCharacterCount> byte_of_character{};  // -1: none.
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of_character.fill(-1);
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint16_t character = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.character_of_byte[byte] = character;
    alphabet.byte_of_character[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();
static_assert(kAlphabet.character_of_byte[0xAD] == kCharacterCount - 1);

}  // namespace

std::string ByteSpelling(uint8_t byte) {
  std::string spelling;
  base::AppendUtf8(kAlphabet.character_of_byte[byte], spelling);
  return spelling;
}

bool BytesOfSpelling(absl::string_view spelling, std::string& bytes) {
  bytes.clear();
  while (!spelling.empty()) {
    const base::Utf8Character character = base::ReadUtf8Character(spelling);
    if (character.code_point >= kCharacterCount) return false;
    const int16_t byte = kAlphabet.byte_of_character[character.code_point];
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
    spelling.remove_prefix(character.byte_count);
  }
  return true;
}

}  // namespace baton::model
