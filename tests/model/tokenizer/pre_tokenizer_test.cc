#include "model/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::model {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(absl::string_view family, absl::string_view text) {
  const auto found = FindPreTokenizerFamily(family);
  EXPECT_TRUE(found.ok()) << found.status();
  std::vector<std::string> pre_tokens;
  const absl::Status status = PreTokenizer(**found).Split(
      text, [&](absl::string_view pre_token) { pre_tokens.emplace_back(pre_token); });
  EXPECT_TRUE(status.ok()) << status;
  return pre_tokens;
}

TEST(PreTokenizer, KeepsALeadingSpaceWithItsWord) {
  for (const auto family : {"smollm", "llama-bpe", "qwen2", "gpt-2"}) {
    EXPECT_THAT(Split(family, "I've  seen it!"), ElementsAre("I", "'ve", " ", " seen", " it", "!"))
        << family;
  }
}

TEST(PreTokenizer, SplitsDigitsAsTheFamilyDoes) {
  EXPECT_THAT(Split("smollm", "a 1234"), ElementsAre("a", " ", "1", "2", "3", "4"));
  EXPECT_THAT(Split("qwen2", "a 1234"), ElementsAre("a", " ", "1", "2", "3", "4"));
  EXPECT_THAT(Split("llama-bpe", "a 1234"), ElementsAre("a", " ", "123", "4"));
  EXPECT_THAT(Split("gpt-2", "a 1234"), ElementsAre("a", " 1234"));
}

TEST(PreTokenizer, ADigitEndsTheTextForSpacesBeforeIt) {
  EXPECT_THAT(Split("smollm", "   1"), ElementsAre("   ", "1"));
  EXPECT_THAT(Split("smollm", "   a"), ElementsAre("  ", " a"));
  EXPECT_THAT(Split("gpt-2", "   1"), ElementsAre("  ", " 1"));
  EXPECT_THAT(Split("qwen2", "   1"), ElementsAre("  ", " ", "1"));
}

TEST(PreTokenizer, KeepsLineEndsAsTheFamilyDoes) {
  EXPECT_THAT(Split("llama-bpe", "a.\n\n  b"), ElementsAre("a", ".\n\n", " ", " b"));
  EXPECT_THAT(Split("smollm", "a.\n\n  b"), ElementsAre("a", ".", "\n\n ", " b"));
  EXPECT_THAT(Split("llama-bpe", " \n \n"), ElementsAre(" \n \n"));
}

TEST(PreTokenizer, FoldsContractionsOnlyWhereTheFamilyDoes) {
  EXPECT_THAT(Split("llama-bpe", "I'VE"), ElementsAre("I", "'VE"));
  EXPECT_THAT(Split("smollm", "I'VE"), ElementsAre("I", "'", "VE"));
}

TEST(PreTokenizer, SpacesAreUnicodesWhiteSpace) {
  EXPECT_THAT(Split("gpt-2", "\xc2\x85\xe3\x80\x80"), ElementsAre("\xc2\x85\xe3\x80\x80"));
  // U+180E was white space once.
  EXPECT_THAT(Split("gpt-2", "\xe1\xa0\x8e "), ElementsAre("\xe1\xa0\x8e", " "));
}

TEST(PreTokenizer, TakesNulAndEveryPlane) {
  EXPECT_THAT(Split("smollm", absl::string_view("a\0b", 3)),
              ElementsAre("a", std::string(1, '\0'), "b"));
  EXPECT_THAT(Split("smollm", "\xf0\x9f\x98\x8a\xf4\x8f\xbf\xbf"),
              ElementsAre("\xf0\x9f\x98\x8a\xf4\x8f\xbf\xbf"));
}

}  // namespace
}  // namespace baton::model
