#include "router/token_relay.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/router/fake_text.h"

namespace baton::router {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TokenRelayTest : public testing::Test {
 protected:
  static std::vector<uint32_t> Bytes(const std::string& text) {
    std::vector<uint32_t> ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }

  absl::Status Accept(uint32_t position, const std::vector<uint32_t>& ids,
                      FinishReason finish = FinishReason::kNone) {
    return relay_->Accept({.ids = ids, .position = position, .finish_reason = finish}, piece_);
  }

  void UseStops(const std::vector<std::string>& stops) { relay_.emplace(&tokenizer_, stops); }

  FakeTokenizer tokenizer_{false, {"DEF", "G", "HI", "J", "stop!", "ABC"}};
  std::optional<TokenRelay> relay_{std::in_place, &tokenizer_, std::vector<std::string>{}};
  AnswerPiece piece_;
};

TEST_F(TokenRelayTest, RelaysTokensInOrder) {
  EXPECT_TRUE(Accept(0, Bytes("a")).ok());
  EXPECT_TRUE(Accept(1, Bytes("bc")).ok());
  EXPECT_EQ(piece_.text, "abc");
  EXPECT_EQ(piece_.tokens, Bytes("abc"));
  EXPECT_EQ(piece_.position, 0u);
  EXPECT_EQ(relay_->tokens_relayed(), 3u);
  EXPECT_EQ(relay_->finish_reason(), FinishReason::kNone);
}

TEST_F(TokenRelayTest, DropsWhatComesTwice) {
  EXPECT_TRUE(Accept(0, Bytes("a")).ok());
  EXPECT_TRUE(Accept(0, Bytes("ab")).ok());
  EXPECT_TRUE(Accept(1, Bytes("b")).ok());
  EXPECT_EQ(piece_.text, "ab");
  EXPECT_EQ(relay_->duplicates(), 2u);
}

TEST_F(TokenRelayTest, KeepsWhatIsAheadOfItsTurn) {
  EXPECT_TRUE(Accept(2, Bytes("c"), FinishReason::kLength).ok());
  EXPECT_TRUE(Accept(1, Bytes("b")).ok());
  EXPECT_THAT(piece_.tokens, IsEmpty());
  EXPECT_TRUE(Accept(0, Bytes("a")).ok());
  EXPECT_EQ(piece_.text, "abc");
  EXPECT_EQ(relay_->finish_reason(), FinishReason::kLength);
}

TEST_F(TokenRelayTest, TooMuchAheadIsAnError) {
  absl::Status status;
  for (uint32_t i = 0; i <= TokenRelay::kTokensAheadMax && status.ok(); ++i) {
    status = Accept(10 + i, Bytes("x"));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
}

TEST_F(TokenRelayTest, LogprobsGoWithTheirTokens) {
  const std::vector<PositionLogprobs> logprobs = {{.chosen = TokenLogprob{97, -1}},
                                                  {.chosen = TokenLogprob{98, -2}}};
  const std::vector<uint32_t> ids = Bytes("ab");
  EXPECT_TRUE(Accept(0, Bytes("a")).ok());
  EXPECT_TRUE(relay_->Accept({.ids = ids, .logprobs = logprobs, .position = 0}, piece_).ok());
  ASSERT_EQ(piece_.logprobs.size(), 1u);
  EXPECT_EQ(piece_.logprobs[0].chosen->token, 98u);
  EXPECT_FALSE(
      relay_
          ->Accept({.ids = ids, .logprobs = absl::MakeSpan(logprobs).subspan(1), .position = 2},
                   piece_)
          .ok());
}

TEST_F(TokenRelayTest, CharactersAreNeverCut) {
  const std::string text = "안녕 🙂‍↔️";
  std::string sent;
  uint32_t position = 0;
  for (const uint32_t id : Bytes(text)) {
    piece_.Clear();
    EXPECT_TRUE(Accept(position++, {id}).ok());
    EXPECT_EQ(base::FindInvalidUtf8(piece_.text), absl::string_view::npos);
    EXPECT_EQ(piece_.text.find("\xEF\xBF\xBD"), std::string::npos);
    sent += piece_.text;
  }
  EXPECT_EQ(sent, text);
}

TEST_F(TokenRelayTest, AnIncompleteCharacterIsReplacedAtTheEndOnly) {
  EXPECT_TRUE(Accept(0, {0xEC, 0x95}).ok());
  EXPECT_EQ(piece_.text, "");
  EXPECT_TRUE(Accept(2, Bytes("x"), FinishReason::kLength).ok());
  EXPECT_EQ(piece_.text, "\xEF\xBF\xBDx");
  UseStops({});
  piece_.Clear();
  EXPECT_TRUE(Accept(0, {0xEC, 0x95}, FinishReason::kLength).ok());
  EXPECT_EQ(piece_.text, "\xEF\xBF\xBD");
}

TEST_F(TokenRelayTest, TheTokenThatStopsIsCountedAndAddsNoText) {
  EXPECT_TRUE(Accept(0, {'a', 'b'}, FinishReason::kStop).ok());
  EXPECT_EQ(piece_.text, "a");
  EXPECT_EQ(relay_->tokens_relayed(), 2u);
  EXPECT_EQ(relay_->finish_reason(), FinishReason::kStop);
  EXPECT_FALSE(relay_->stopped_by_text());
}

TEST_F(TokenRelayTest, SpecialTokensAddNoText) {
  EXPECT_TRUE(Accept(0, {'a', kFakeBos, 'b', kFakeEos}, FinishReason::kStop).ok());
  EXPECT_EQ(piece_.text, "ab");
}

TEST_F(TokenRelayTest, AStopStringEndsTheAnswerAndDropsTheRest) {
  UseStops({"DEFGHIJ"});
  const uint32_t abc = kFakeFirstWord + 5;
  EXPECT_TRUE(Accept(0, {abc, kFakeFirstWord, kFakeFirstWord + 1}).ok());
  EXPECT_EQ(piece_.text, "ABC");
  EXPECT_TRUE(Accept(3, {kFakeFirstWord + 2, kFakeFirstWord + 3, 'x'}).ok());
  EXPECT_EQ(piece_.text, "ABC");
  EXPECT_EQ(piece_.tokens.size(), 5u);
  EXPECT_EQ(relay_->tokens_relayed(), 5u);
  EXPECT_EQ(relay_->finish_reason(), FinishReason::kStop);
  EXPECT_TRUE(relay_->stopped_by_text());
  EXPECT_TRUE(Accept(6, Bytes("late"), FinishReason::kLength).ok());
  EXPECT_EQ(piece_.tokens.size(), 5u);
  EXPECT_EQ(relay_->finish_reason(), FinishReason::kStop);
}

TEST_F(TokenRelayTest, HeldTextComesOnceWithEosAndWithLength) {
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength}) {
    UseStops({"abX"});
    piece_.Clear();
    EXPECT_TRUE(Accept(0, Bytes("zab")).ok());
    EXPECT_EQ(piece_.text, "z");
    const uint32_t last = reason == FinishReason::kStop ? kFakeEos : 'c';
    EXPECT_TRUE(Accept(3, {last}, reason).ok());
    EXPECT_EQ(piece_.text, reason == FinishReason::kStop ? "zab" : "zabc");
    EXPECT_EQ(relay_->finish_reason(), reason);
  }
}

TEST_F(TokenRelayTest, ARepeatedLastTokenMayBringTheFinish) {
  EXPECT_TRUE(Accept(0, Bytes("a")).ok());
  EXPECT_TRUE(Accept(0, Bytes("a"), FinishReason::kLength).ok());
  EXPECT_EQ(relay_->finish_reason(), FinishReason::kLength);
  EXPECT_THAT(piece_.tokens, ElementsAre('a'));
}

TEST_F(TokenRelayTest, AModelWithoutATokenizerGivesTokensOnly) {
  TokenRelay relay(nullptr, {});
  const std::vector<uint32_t> ids = {1, 2, 3};
  EXPECT_TRUE(
      relay.Accept({.ids = ids, .position = 0, .finish_reason = FinishReason::kLength}, piece_)
          .ok());
  EXPECT_EQ(piece_.tokens, ids);
  EXPECT_EQ(piece_.text, "");
}

}  // namespace
}  // namespace baton::router
