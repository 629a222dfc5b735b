#include "router/stop_matcher.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

struct Fed {
  std::string sent;
  bool stopped = false;
  std::vector<size_t> held;  // After each piece.
};

Fed Feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
         bool flush = true) {
  StopMatcher matcher(stops);
  Fed fed;
  for (const std::string& piece : pieces) {
    fed.stopped = matcher.Append(piece, fed.sent);
    fed.held.push_back(matcher.held_bytes());
    if (fed.stopped) return fed;
  }
  if (flush) matcher.Flush(fed.sent);
  return fed;
}

struct StopCase {
  std::string name;
  std::vector<std::string> stops;
  std::vector<std::string> pieces;
  std::string sent;
  bool stopped;
};

class StopMatcherTest : public testing::TestWithParam<StopCase> {};

TEST_P(StopMatcherTest, SendsWhatStandsBeforeTheStop) {
  const StopCase& c = GetParam();
  const Fed fed = Feed(c.stops, c.pieces);
  EXPECT_EQ(fed.sent, c.sent);
  EXPECT_EQ(fed.stopped, c.stopped);
}

const StopCase kCases[] = {
    {"NoStops", {}, {"a", "bc"}, "abc", false},
    {"SplitOverTokens", {"DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "J", "K"}, "ABC", true},
    {"InsideOneToken", {"stop"}, {"please ", "stop!"}, "please ", true},
    {"WholeFirstToken", {"stop"}, {"stop"}, "", true},
    {"EndsInsideAToken", {"ab"}, {"xa", "by"}, "x", true},
    {"PrefixThatFails", {"DEFX"}, {"ABC", "DEF", "G"}, "ABCDEFG", false},
    {"HeldPrefixIsFlushed", {"DEFX"}, {"ABC", "DEF"}, "ABCDEF", false},
    {"SelfOverlap", {"aab"}, {"a", "a", "a", "b"}, "a", true},
    {"OverlapAcrossFailure", {"abac"}, {"ab", "ab", "ac"}, "ab", true},
    {"FirstCompleteWins", {"abc", "b"}, {"xabc"}, "xa", true},
    {"LongestOfThoseThatEndTogether", {"c", "abc"}, {"xabc"}, "x", true},
    {"OneInsideTheOther", {"bb", "abba"}, {"abba"}, "a", true},
    {"WholeCharacters", {"日本語"}, {"今日は日本", "語です"}, "今日は", true},
    {"CharacterPrefixShared", {"日本語"}, {"日本", "酒"}, "日本酒", false},
};
INSTANTIATE_TEST_SUITE_P(Cases, StopMatcherTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// The specification, written down naively.
size_t LongestSuffixThatMayBecomeAStop(const std::string& text,
                                       const std::vector<std::string>& stops) {
  for (size_t length = text.size(); length > 0; --length) {
    const std::string suffix = text.substr(text.size() - length);
    for (const std::string& stop : stops) {
      if (stop.size() > length && stop.compare(0, length, suffix) == 0) return length;
    }
  }
  return 0;
}

TEST(StopMatcher, HoldsExactlyTheLongestSuffixThatIsAProperPrefixOfAStop) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) {
      stop.resize(1 + random() % 64);
      for (char& c : stop) c = "ab"[random() % 2];
    }
    StopMatcher matcher(stops);
    std::string text, sent;
    for (int i = 0; i < 60; ++i) {
      std::string piece(1 + random() % 5, ' ');
      for (char& c : piece) c = "abc"[random() % 3];
      if (matcher.Append(piece, sent)) break;
      text += piece;
      ASSERT_EQ(matcher.held_bytes(), LongestSuffixThatMayBecomeAStop(text, stops)) << text;
      ASSERT_EQ(sent, text.substr(0, text.size() - matcher.held_bytes()));
    }
  }
}

TEST(StopMatcher, TheCutOfTheTextDoesNotMatter) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) {
      stop.resize(1 + random() % 6);
      for (char& c : stop) c = "ab"[random() % 2];
    }
    std::string text(40, ' ');
    for (char& c : text) c = "abc"[random() % 3];
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random() % 7));
      at += pieces.back().size();
    }
    const Fed whole = Feed(stops, {text});
    const Fed cut = Feed(stops, pieces);
    ASSERT_EQ(whole.sent, cut.sent) << text;
    ASSERT_EQ(whole.stopped, cut.stopped);
  }
}

TEST(StopMatcher, StopsOfAllLegalLengthsAreFlushedOnceAtTheEnd) {
  for (size_t length = 1; length <= 64; ++length) {
    const std::string stop(length, 's');
    const std::string held(length - 1, 's');
    EXPECT_EQ(Feed({stop}, {"text", held}).sent, "text" + held) << length;
    // An answer that is cancelled is not flushed.
    EXPECT_EQ(Feed({stop}, {"text", held}, /*flush=*/false).sent, "text") << length;
  }
  StopMatcher matcher({"ss"});
  std::string sent;
  matcher.Append("s", sent);
  matcher.Flush(sent);
  matcher.Flush(sent);
  EXPECT_EQ(sent, "s");
}

}  // namespace
}  // namespace baton::router
