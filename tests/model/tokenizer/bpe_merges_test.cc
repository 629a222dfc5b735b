#include "model/tokenizer/bpe_merges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace baton::model {
namespace {

// The definition: again and again the best-ranked pair, leftmost first.
std::vector<uint32_t> MergeByDefinition(
    std::vector<uint32_t> tokens,
    const std::map<std::pair<uint32_t, uint32_t>, std::pair<size_t, uint32_t>>& merges) {
  while (true) {
    size_t best = tokens.size();
    std::pair<size_t, uint32_t> best_merge;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto merge = merges.find({tokens[i], tokens[i + 1]});
      if (merge == merges.end()) continue;
      if (best == tokens.size() || merge->second.first < best_merge.first) {
        best = i;
        best_merge = merge->second;
      }
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = best_merge.second;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMerges, EqualsItsDefinitionOnRandomMerges) {
  std::mt19937 random(20261201);
  BpeMerges::Scratch scratch;
  for (int round = 0; round < 300; ++round) {
    BpeMerges merges;
    std::map<std::pair<uint32_t, uint32_t>, std::pair<size_t, uint32_t>> by_pair;
    uint32_t token_count = 3;
    for (int i = 0; i < 40; ++i) {
      const uint32_t left = random() % token_count, right = random() % token_count;
      if (!merges.Add({left, right}, token_count)) continue;
      by_pair[{left, right}] = {by_pair.size(), token_count};
      ++token_count;
    }
    std::vector<uint32_t> tokens(random() % 60);
    for (uint32_t& token : tokens) token = random() % 3;
    const auto expected = MergeByDefinition(tokens, by_pair);
    merges.Merge(tokens, scratch);
    EXPECT_EQ(tokens, expected) << "round " << round;
  }
}

TEST(BpeMerges, KeepsTheFirstMergeOfAPair) {
  BpeMerges merges;
  EXPECT_TRUE(merges.Add({0, 1}, 2));
  EXPECT_FALSE(merges.Add({0, 1}, 3));
  std::vector<uint32_t> tokens = {0, 1};
  BpeMerges::Scratch scratch;
  merges.Merge(tokens, scratch);
  EXPECT_EQ(tokens, std::vector<uint32_t>{2});
}

}  // namespace
}  // namespace baton::model
