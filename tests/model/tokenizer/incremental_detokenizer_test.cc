#include <gtest/gtest.h>

#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/small_vocabulary.h"

namespace baton::model {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

// Characters of 1 to 4 bytes: Korean, Thai with marks, a family joined by ZWJ, a flag, a skin tone.
constexpr absl::string_view kTexts[] = {
    "안녕하세요, 세계!",
    "สวัสดีชาวโลก",
    "👨‍👩‍👧‍👦 and 👩🏽‍🚀",
    "🇰🇷🇹🇭 ❤️‍🔥",
    "plain, é, €, 𝄞",
};

class IncrementalDetokenizerTest : public ::testing::Test {
 protected:
  IncrementalDetokenizerTest() {
    TokenizerData data = SmallVocabulary("smollm");
    end_ = AddSpecial(data, "<end>", kControl);
    tokenizer_ = *Tokenizer::Create(data);
  }

  std::string Stream(absl::string_view bytes) {
    IncrementalDetokenizer detokenizer(*tokenizer_, false);
    std::string text;
    for (const char byte : bytes) text += detokenizer.Append(static_cast<uint8_t>(byte));
    return text + detokenizer.Flush();
  }

  uint32_t end_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(IncrementalDetokenizerTest, ByteByByteGivesWholeCharactersOnly) {
  for (const absl::string_view text : kTexts) {
    IncrementalDetokenizer detokenizer(*tokenizer_, false);
    std::string sent;
    for (const char byte : text) {
      sent += detokenizer.Append(static_cast<uint8_t>(byte));
      ASSERT_EQ(text.substr(0, sent.size()), sent);
      const bool at_boundary =
          sent.size() == text.size() || (static_cast<uint8_t>(text[sent.size()]) & 0xC0) != 0x80;
      ASSERT_TRUE(at_boundary) << "at byte " << sent.size() << " of " << text;
    }
    EXPECT_EQ(sent, text);
    EXPECT_EQ(detokenizer.Flush(), "");
  }
}

TEST_F(IncrementalDetokenizerTest, CutAnywhereGivesTheSameText) {
  for (const absl::string_view text : kTexts) {
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      for (size_t second = cut; second <= text.size(); ++second) {
        IncrementalDetokenizer detokenizer(*tokenizer_, false);
        std::string sent = detokenizer.AppendBytes(text.substr(0, cut));
        sent += detokenizer.AppendBytes(text.substr(cut, second - cut));
        sent += detokenizer.AppendBytes(text.substr(second));
        ASSERT_EQ(sent, text) << cut << " " << second;
        ASSERT_EQ(detokenizer.Flush(), "");
      }
    }
  }
}

TEST_F(IncrementalDetokenizerTest, EndInsideACharacterGivesOneReplacement) {
  const absl::string_view smile = "\xf0\x9f\x98\x8a";
  for (size_t bytes = 1; bytes < smile.size(); ++bytes) {
    EXPECT_EQ(Stream(smile.substr(0, bytes)), kReplacement) << bytes;
  }
}

TEST_F(IncrementalDetokenizerTest, ByteThatCannotBecomeValidIsSentAtOnce) {
  IncrementalDetokenizer detokenizer(*tokenizer_, false);
  EXPECT_EQ(detokenizer.Append(0x80), kReplacement);
  EXPECT_EQ(detokenizer.Append(0xFF), kReplacement);
  EXPECT_EQ(detokenizer.Append(0xC0), kReplacement);
  EXPECT_EQ(detokenizer.Append(0xE2), "");
  EXPECT_EQ(detokenizer.Append('a'), std::string(kReplacement) + "a");
  EXPECT_EQ(detokenizer.Append(0xF0), "");
  EXPECT_EQ(detokenizer.Append(0x9F), "");
  EXPECT_EQ(detokenizer.Append(0xF0), kReplacement);
  EXPECT_EQ(detokenizer.Append(0x9F), "");
  EXPECT_EQ(detokenizer.Append(0x98), "");
  EXPECT_EQ(detokenizer.Append(0x8A), "\xf0\x9f\x98\x8a");
  // A surrogate, and a code point beyond the last: hopeless from their second byte on.
  EXPECT_EQ(detokenizer.Append(0xED), "");
  EXPECT_EQ(detokenizer.Append(0xA0), std::string(kReplacement) + std::string(kReplacement));
  EXPECT_EQ(detokenizer.Append(0xF4), "");
  EXPECT_EQ(detokenizer.Append(0x90), std::string(kReplacement) + std::string(kReplacement));
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST_F(IncrementalDetokenizerTest, NeverHoldsMoreThanThreeBytes) {
  IncrementalDetokenizer detokenizer(*tokenizer_, false);
  uint32_t held = 0;
  uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525 + 1013904223;
    const bool sent = !detokenizer.Append(state >> 24).empty();
    held = sent ? 0 : held + 1;
    ASSERT_LE(held, 3u) << "byte " << i;
  }
}

TEST_F(IncrementalDetokenizerTest, SpecialTokensAddNoTextUnlessKept) {
  IncrementalDetokenizer dropping(*tokenizer_, false);
  EXPECT_EQ(dropping.Append('a'), "a");
  EXPECT_EQ(dropping.Append(end_), "");
  IncrementalDetokenizer keeping(*tokenizer_, true);
  EXPECT_EQ(keeping.Append(end_), "<end>");
}

}  // namespace
}  // namespace baton::model
