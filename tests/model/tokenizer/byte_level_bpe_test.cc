#include "model/tokenizer/byte_level_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/model/tokenizer/small_vocabulary.h"

namespace baton::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> CreateOrDie(const TokenizerData& data) {
  auto tokenizer = Tokenizer::Create(data);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<uint32_t> EncodeOrDie(const Tokenizer& tokenizer, absl::string_view text,
                                  const Tokenizer::EncodeOptions& options = {}) {
  auto tokens = tokenizer.Encode(text, options);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *std::move(tokens);
}

std::string Decode(const Tokenizer& tokenizer, const std::vector<uint32_t>& tokens) {
  std::string bytes;
  for (const uint32_t token : tokens) bytes += tokenizer.token_bytes(token);
  return bytes;
}

TEST(ByteLevelBpe, MergesBestRankFirst) {
  TokenizerData data = SmallVocabulary("gpt-2");
  const uint32_t bc = AddMerge(data, "b", "c");
  const uint32_t ab = AddMerge(data, "a", "b");
  const uint32_t bcd = AddMerge(data, "bc", "d");
  const auto tokenizer = CreateOrDie(data);
  EXPECT_THAT(EncodeOrDie(*tokenizer, "abcd"), ElementsAre('a', bcd));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "abbc"), ElementsAre(ab, bc));
  EXPECT_THAT(EncodeOrDie(*tokenizer, ""), ElementsAre());
}

TEST(ByteLevelBpe, MergesLeftmostOfEqualRanksFirst) {
  TokenizerData data = SmallVocabulary("gpt-2");
  const uint32_t aa = AddMerge(data, "a", "a");
  const auto tokenizer = CreateOrDie(data);
  EXPECT_THAT(EncodeOrDie(*tokenizer, "aaaaa"), ElementsAre(aa, aa, 'a'));
}

TEST(ByteLevelBpe, NeverMergesAcrossPreTokens) {
  TokenizerData data = SmallVocabulary("gpt-2");
  AddMerge(data, "a", "Ġ");
  const uint32_t space_b = AddMerge(data, "Ġ", "b");
  const auto tokenizer = CreateOrDie(data);
  EXPECT_THAT(EncodeOrDie(*tokenizer, "a b"), ElementsAre('a', space_b));
  EXPECT_EQ(tokenizer->token_bytes(space_b), " b");
}

TEST(ByteLevelBpe, TakesWholeWordsFirstWhereTheFamilyDoes) {
  for (const std::string pre : {"llama-bpe", "qwen2"}) {
    TokenizerData data = SmallVocabulary(pre);
    data.add_bos = false;
    const uint32_t ab = AddMerge(data, "a", "b");
    const uint32_t abc =
        AddSpecial(data, "abc", kNormal);  // In the vocabulary, but made by no merge.
    const auto tokenizer = CreateOrDie(data);
    if (pre == "llama-bpe") {
      EXPECT_THAT(EncodeOrDie(*tokenizer, "abc"), ElementsAre(abc));
    } else {
      EXPECT_THAT(EncodeOrDie(*tokenizer, "abc"), ElementsAre(ab, 'c'));
    }
  }
}

TEST(ByteLevelBpe, FindsControlTokensOnlyWhenAsked) {
  TokenizerData data = SmallVocabulary("smollm");
  const uint32_t end = AddSpecial(data, "<end>", kControl);
  const uint32_t end_of_all = AddSpecial(data, "<end><all>", kControl);
  const uint32_t think = AddSpecial(data, "<think>", kUserDefined);
  const auto tokenizer = CreateOrDie(data);
  const Tokenizer::EncodeOptions parse = {.parse_special = true};
  EXPECT_THAT(EncodeOrDie(*tokenizer, "a<end>b", parse), ElementsAre('a', end, 'b'));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "<end><end><all>", parse), ElementsAre(end, end_of_all));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "<end><al", parse), ElementsAre(end, '<', 'a', 'l'));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "<end>"), ElementsAre('<', 'e', 'n', 'd', '>'));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "<think>"), ElementsAre(think));
  EXPECT_EQ(tokenizer->token_bytes(end), "<end>");
  EXPECT_EQ(tokenizer->token_bytes_max(), 10u);
  EXPECT_TRUE(tokenizer->is_special(end));
  EXPECT_FALSE(tokenizer->is_special(think));
  EXPECT_FALSE(tokenizer->is_special('a'));
}

TEST(ByteLevelBpe, AddsBosAndEosOnceEach) {
  TokenizerData data = SmallVocabulary("smollm");
  const uint32_t bos = AddSpecial(data, "<s>", kControl);
  const uint32_t eos = AddSpecial(data, "</s>", kControl);
  data.bos_id = bos;
  data.eos_id = eos;
  data.add_bos = data.add_eos = true;
  const auto tokenizer = CreateOrDie(data);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos_id(), bos);
  EXPECT_EQ(tokenizer->bos_text(), "<s>");
  EXPECT_EQ(tokenizer->eos_text(), "</s>");
  const Tokenizer::EncodeOptions add = {.add_special = true};
  const Tokenizer::EncodeOptions add_and_parse = {.add_special = true, .parse_special = true};
  EXPECT_THAT(EncodeOrDie(*tokenizer, "a"), ElementsAre('a'));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "a", add), ElementsAre(bos, 'a', eos));
  EXPECT_THAT(EncodeOrDie(*tokenizer, "", add), ElementsAre(bos, eos));
  // A template that writes BOS itself gets no second one.
  EXPECT_THAT(EncodeOrDie(*tokenizer, "<s>a</s>", add_and_parse), ElementsAre(bos, 'a', eos));
}

TEST(ByteLevelBpe, FamilyDecidesOnBosWhereTheFileIsSilent) {
  for (const std::string pre : {"llama-bpe", "smollm"}) {
    TokenizerData data = SmallVocabulary(pre);
    data.bos_id = AddSpecial(data, "<s>", kControl);
    EXPECT_EQ(CreateOrDie(data)->adds_bos(), pre == "llama-bpe") << pre;
  }
}

TEST(ByteLevelBpe, LeavesOutBytesWithoutAToken) {
  TokenizerData data = SmallVocabulary("smollm");
  data.tokens[4] = "gone";
  const auto tokenizer = CreateOrDie(data);
  EXPECT_THAT(EncodeOrDie(*tokenizer, "a\4b"), ElementsAre('a', 'b'));
}

TEST(ByteLevelBpe, RefusesInvalidUtf8NamingTheOffset) {
  const auto tokenizer = CreateOrDie(SmallVocabulary("smollm"));
  const struct {
    absl::string_view text;
    absl::string_view offset;
  } kCases[] = {{"\xff", "offset 0"},
                {"ab\xc3", "offset 2"},
                {"12345678\x80", "offset 8"},
                {"\xed\xa0\x80", "offset 0"},
                {"\xf4\x90\x80\x80", "offset 0"},
                {"\xe4\xbd\xa0\xc0\xaf", "offset 3"}};
  for (const auto& test : kCases) {
    const auto tokens = tokenizer->Encode(test.text, {});
    EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(tokens.status().ToString(), HasSubstr(std::string(test.offset)));
  }
}

TEST(ByteLevelBpe, RefusesTextBeyondItsBound) {
  const auto tokenizer = CreateOrDie(SmallVocabulary("smollm"));
  const auto tokens = tokenizer->Encode(std::string(Tokenizer::kTextBytesMax + 1, 'a'), {});
  EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ByteLevelBpe, RefusesInconsistentData) {
  const struct {
    const char* name;
    void (*spoil)(TokenizerData&);
    const char* message;
  } kCases[] = {
      {"model", [](TokenizerData& d) { d.model = "llama"; }, "\"llama\"; known is gpt2"},
      {"no pre", [](TokenizerData& d) { d.pre = ""; }, "pre is missing; known are gpt-2, llama"},
      {"pre", [](TokenizerData& d) { d.pre = "default"; }, "pre is \"default\"; known are gpt-2"},
      {"empty", [](TokenizerData& d) { d.tokens.clear(); }, "tokens is empty"},
      {"types", [](TokenizerData& d) { d.types.pop_back(); }, "has 256 entries for 257 tokens"},
      {"type", [](TokenizerData& d) { d.types[7] = 9; }, "token_type[7] is 9"},
      {"utf8", [](TokenizerData& d) { d.tokens[7] = "\xff"; }, "tokens[7] is not valid UTF-8"},
      {"merge", [](TokenizerData& d) { d.merges[0] = "ab"; }, "merges[0] is \"ab\""},
      {"merge parts", [](TokenizerData& d) { d.merges[0] = "a c"; }, "merges[0] is \"a c\""},
      {"merge sides", [](TokenizerData& d) { d.merges[0] = " ab"; }, "merges[0] is \" ab\""},
      {"bos", [](TokenizerData& d) { d.bos_id = 257; }, "bos_token_id is 257; legal is below 257"},
      {"add bos", [](TokenizerData& d) { d.add_bos = true; }, "add_bos_token is true"},
      {"add eos", [](TokenizerData& d) { d.add_eos = true; }, "add_eos_token is true"},
  };
  for (const auto& test : kCases) {
    TokenizerData data = SmallVocabulary("smollm");
    AddMerge(data, "a", "b");
    ASSERT_TRUE(Tokenizer::Create(data).ok());
    test.spoil(data);
    const auto tokenizer = Tokenizer::Create(data);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << test.name;
    EXPECT_THAT(tokenizer.status().ToString(), HasSubstr(test.message)) << test.name;
  }
}

// Quadratic merging or splitting would take minutes to hours here.
TEST(ByteLevelBpe, EncodesLongRunsOfAnythingInLinearTime) {
  const std::string kUnits[] = {" ", "\n", "\r\n ", "1", ".", "'", "é", "<|", " a", "😊"};
  for (const std::string pre : {"smollm", "llama-bpe", "qwen2", "gpt-2"}) {
    TokenizerData data = SmallVocabulary(pre);
    data.add_bos = false;
    for (std::string side = "a"; side.size() < 64; side += side) AddMerge(data, side, side);
    const auto tokenizer = CreateOrDie(data);
    EXPECT_EQ(EncodeOrDie(*tokenizer, std::string(1 << 20, 'a')).size(), (1 << 20) / 64) << pre;
    for (const std::string& unit : kUnits) {
      std::string text;
      while (text.size() < 1 << 18) text += unit;
      text += 'x';
      const auto tokens = EncodeOrDie(*tokenizer, text, {.parse_special = true});
      EXPECT_TRUE(Decode(*tokenizer, tokens) == text) << pre << " '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace baton::model
