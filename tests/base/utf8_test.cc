#include "base/utf8.h"

#include <gtest/gtest.h>

namespace baton::base {
namespace {

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(code_point, text);
    const Utf8Character character = ReadUtf8Character(text);
    ASSERT_EQ(character.state, Utf8State::VALID) << std::hex << uint32_t{code_point};
    ASSERT_EQ(character.code_point, code_point);
    ASSERT_EQ(character.byte_count, text.size());
    for (uint32_t bytes = 1; bytes < text.size(); ++bytes) {
      const Utf8Character cut = ReadUtf8Character(absl::string_view(text).substr(0, bytes));
      ASSERT_EQ(cut.state, Utf8State::INCOMPLETE);
      ASSERT_EQ(cut.byte_count, bytes);
    }
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  const struct {
    absl::string_view text;
    size_t offset;
  } kCases[] = {
      {"", absl::string_view::npos},
      {"ascii only, longer than eight", absl::string_view::npos},
      {"12345678é12345678€", absl::string_view::npos},
      {"12345678\x80", 8},
      {"1234567\xc3", 7},
      {"\xc0\xaf", 0},          // Overlong.
      {"\xe0\x9f\xbf", 0},      // Overlong.
      {"\xf0\x8f\xbf\xbf", 0},  // Overlong.
      {"\xed\xa0\x80", 0},      // A surrogate.
      {"\xf4\x90\x80\x80", 0},  // Above U+10FFFF.
      {"\xf5\x80\x80\x80", 0},
      {"a\xe2\x82", 1},
  };
  for (const auto& test : kCases) EXPECT_EQ(FindInvalidUtf8(test.text), test.offset) << test.text;
}

TEST(Utf8, InvalidTakesTheMaximalSubpart) {
  EXPECT_EQ(ReadUtf8Character("\xf0\x9f\x98z").byte_count, 3u);
  EXPECT_EQ(ReadUtf8Character("\xe2\x82z").byte_count, 2u);
  EXPECT_EQ(ReadUtf8Character("\xed\xa0\x80").byte_count, 1u);
  EXPECT_EQ(ReadUtf8Character("\xff").byte_count, 1u);
}

}  // namespace
}  // namespace baton::base
