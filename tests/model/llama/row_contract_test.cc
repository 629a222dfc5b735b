// The row contract in the whole model: what is computed for a sequence does not depend on chunks, batch, blocks or threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/cpu_level.h"
#include "llama_harness.h"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

using kernels::CpuLevel;

constexpr uint32_t kTokens = 700;
constexpr uint32_t kReferenceTokens = 90;  // It is a hundred times slower.
constexpr uint32_t kArenaTokens = 4096;

struct Model {
  const char* name;
  const char* path;  // Under tests/golden.
};

constexpr Model kModels[] = {
    {"Q4_1", "tiny.Q4_1.gguf"}, {"Q6_K", "tiny.Q6_K.gguf"}, {"F32", "llama-f32"}, {"BF16", "llama-bf16"}};

std::vector<uint32_t> RandomTokens(uint32_t count, uint32_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = random() % vocabulary;
  return tokens;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class RowContractTest : public testing::TestWithParam<std::tuple<Model, CpuLevel>> {
 protected:
  void SetUp() override {
    if (!kernels::Supported(std::get<1>(GetParam()))) GTEST_SKIP() << "this CPU lacks the level";
    LlamaHarness model = Load({.threads = 1});
    count_ = std::get<1>(GetParam()) == CpuLevel::kReference ? kReferenceTokens : kTokens;
    tokens_ = RandomTokens(count_, model.vocabulary(), 7);
    whole_ = FeedWhole(model);
  }

  LlamaHarness Load(LlamaOptions options) const {
    options.cpu_level = std::get<1>(GetParam());
    return LlamaHarness(SourceDir() + "/tests/golden/" + std::get<0>(GetParam()).path,
                        options, kArenaTokens);
  }

  std::vector<float> FeedWhole(LlamaHarness& model) const {
    LlamaHarness::Sequence sequence = model.NewSequence(count_);
    return model.Feed(sequence, tokens_, count_);
  }

  uint32_t count_ = 0;
  std::vector<uint32_t> tokens_;
  std::vector<float> whole_;  // Logits of all rows, computed in one piece on one thread.
};

TEST_P(RowContractTest, ChunksDoNotMatter) {
  LlamaHarness model = Load({.threads = 2});
  for (const std::vector<uint32_t>& chunks : std::vector<std::vector<uint32_t>>{
           {300, 399, 1}, {13, 1, 1, 7, 500, 176, 2}, {16, 16, 17, 31, 33, 64, 65, 128, 330}}) {
    model.Clear();
    LlamaHarness::Sequence sequence = model.NewSequence(count_);
    std::vector<float> logits;
    for (const uint32_t chunk : chunks) {
      const uint32_t count = std::min(chunk, count_ - sequence.length);
      if (count == 0) break;
      const std::vector<float> part = model.Run(
          {{&sequence, absl::MakeConstSpan(tokens_).subspan(sequence.length, count), count}});
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(SameBits(logits, whole_)) << "first chunk " << chunks[0];
  }
}

TEST_P(RowContractTest, OneByOneIsTheSame) {
  LlamaHarness model = Load({.threads = 2});
  LlamaHarness::Sequence sequence = model.NewSequence(count_);
  EXPECT_TRUE(SameBits(model.Feed(sequence, tokens_, 1), whole_));
}

TEST_P(RowContractTest, BlockSizeDoesNotMatter) {
  for (const uint32_t block_tokens : {8u, 32u, 64u, 128u}) {
    LlamaHarness model = Load({.threads = 2, .block_tokens = block_tokens});
    EXPECT_TRUE(SameBits(FeedWhole(model), whole_)) << block_tokens;
    model.Clear();
    LlamaHarness::Sequence sequence = model.NewSequence(count_);
    EXPECT_TRUE(SameBits(model.Feed(sequence, tokens_, 37), whole_)) << block_tokens << ", chunks of 37";
  }
}

TEST_P(RowContractTest, ThreadsDoNotMatter) {
  for (const uint32_t threads : {2u, 3u, 5u}) {
    LlamaHarness model = Load({.threads = threads});
    EXPECT_TRUE(SameBits(FeedWhole(model), whole_)) << threads;
  }
}

// Three sequences of other lengths come and go beside it, before and behind it in the batch.
TEST_P(RowContractTest, CompanyDoesNotMatter) {
  LlamaHarness model = Load({.threads = 2, .block_tokens = 8});
  LlamaHarness::Sequence mine = model.NewSequence(count_);
  std::vector<LlamaHarness::Sequence> others;
  std::vector<std::vector<uint32_t>> other_tokens;
  for (uint32_t i = 0; i < 3; ++i) {
    other_tokens.push_back(RandomTokens(count_, model.vocabulary(), 100 + i));
    others.push_back(model.NewSequence(count_));
  }
  std::mt19937 random(3);
  std::vector<float> logits;
  while (mine.length < count_) {
    std::vector<LlamaHarness::Chunk> chunks;
    uint64_t rows_before = 0;
    const auto add_other = [&](uint32_t i) {
      const uint32_t left = count_ - others[i].length;
      const uint32_t count = std::min<uint32_t>(left, 1 + random() % 40);
      if (count == 0) return 0u;
      const uint32_t wanted = random() % (count + 1);
      chunks.push_back({&others[i], absl::MakeConstSpan(other_tokens[i]).subspan(others[i].length, count),
                        wanted});
      return wanted;
    };
    rows_before += add_other(0);
    if (random() % 2 == 0) rows_before += add_other(1);
    const uint32_t count = std::min<uint32_t>(count_ - mine.length, random() % 3 == 0 ? 1 : 1 + random() % 60);
    chunks.push_back({&mine, absl::MakeConstSpan(tokens_).subspan(mine.length, count), count});
    add_other(2);
    const std::vector<float> all = model.Run(chunks);
    const auto first = all.begin() + static_cast<ptrdiff_t>(rows_before * model.vocabulary());
    logits.insert(logits.end(), first, first + static_cast<ptrdiff_t>(uint64_t{count} * model.vocabulary()));
  }
  EXPECT_TRUE(SameBits(logits, whole_));
}

// What stood in the arena before (here: another sequence's KV, in scattered blocks) is not seen.
TEST_P(RowContractTest, OldBlocksDoNotMatter) {
  LlamaHarness model = Load({.threads = 2});
  LlamaHarness::Sequence old = model.NewSequence(kArenaTokens);
  model.Feed(old, RandomTokens(1000, model.vocabulary(), 55), 500);
  model.Clear();
  EXPECT_TRUE(SameBits(FeedWhole(model), whole_));
}

// The comparison sees what it must: a wrong position, a stale block and another token each change later rows. (Whole blocks in
// another order do not: attention is a sum over a set, and keys carry their position.)
TEST_P(RowContractTest, EqualityFailsWithAFault) {
  LlamaHarness model = Load({.threads = 2});
  const uint32_t before = count_ - 20;
  const auto last_row = [&](uint32_t first_token, auto fault) {
    model.Clear();
    std::vector<uint32_t> tokens = tokens_;
    tokens[0] = first_token;
    LlamaHarness::Sequence sequence = model.NewSequence(count_);
    model.Run({{&sequence, absl::MakeConstSpan(tokens).subspan(0, before), 0}});
    fault(sequence);
    return model.Run({{&sequence, absl::MakeConstSpan(tokens).subspan(before), 1}});
  };
  const auto none = [](LlamaHarness::Sequence&) {};
  const std::vector<float> right = last_row(tokens_[0], none);
  EXPECT_TRUE(SameBits(right, {whole_.end() - model.vocabulary(), whole_.end()}));
  EXPECT_FALSE(SameBits(right, last_row((tokens_[0] + 1) % model.vocabulary(), none))) << "another token";
  EXPECT_FALSE(SameBits(right, last_row(tokens_[0], [](auto& s) { s.length -= 1; }))) << "wrong position";
  EXPECT_FALSE(SameBits(right, last_row(tokens_[0], [&](auto& s) {
    s.blocks[3] = model.NewSequence(1).blocks[0];  // Never written for this sequence.
  }))) << "stale block";
}

INSTANTIATE_TEST_SUITE_P(
    Models, RowContractTest,
    testing::Combine(testing::ValuesIn(kModels), testing::Values(CpuLevel::kAvx512NoBf16, CpuLevel::kAvx512)),
    [](const auto& info) {
      std::string name = std::string(std::get<0>(info.param).name) + "_" +
                         std::string(kernels::CpuLevelName(std::get<1>(info.param)));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

INSTANTIATE_TEST_SUITE_P(Reference, RowContractTest,
                         testing::Combine(testing::Values(kModels[0]), testing::Values(CpuLevel::kReference)),
                         [](const auto& info) { return std::string(std::get<0>(info.param).name); });

}  // namespace
}  // namespace baton::model
