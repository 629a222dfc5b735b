#include "model/llama/llama_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "llama_harness.h"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

const std::string kModel = SourceDir() + "/tests/golden/tiny.Q4_1.gguf";

TEST(LlamaModel, DescribesItself) {
  LlamaHarness model(kModel, {.cpu_level = kernels::CpuLevel::kReference, .threads = 1}, 64);
  const ModelInfo& info = model.model().info();
  EXPECT_EQ(info.name, "tiny.Q4_1");
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.vocabulary_size, 1000u);
  EXPECT_EQ(info.context_tokens, 1024u);
  EXPECT_EQ(info.kv_heads, 2u);
  EXPECT_EQ(info.head_dim, 64u);
  EXPECT_FALSE(info.f32_weights);
  EXPECT_EQ(info.digest.size(), 32u);
  EXPECT_THAT(model.model().numerics_class(), testing::MatchesRegex("cpu/reference/w-exact-r[0-9]+/bf16"));
  EXPECT_THAT(model.model().description(), HasSubstr("reference, 1 threads, KV bf16"));
}

TEST(LlamaModel, F32WeightsKeepF32Kv) {
  LlamaHarness f32(SourceDir() + "/tests/golden/llama-f32", {.threads = 1}, 64);
  EXPECT_TRUE(f32.model().info().f32_weights);
  EXPECT_EQ(f32.model().kv_layout().type, kernels::KvType::kF32);
  LlamaHarness bf16(SourceDir() + "/tests/golden/llama-bf16", {.threads = 1}, 64);
  EXPECT_FALSE(bf16.model().info().f32_weights);
  EXPECT_EQ(bf16.model().kv_layout().type, kernels::KvType::kBf16);
}

TEST(LlamaModel, NamesOptionsOutOfRange) {
  const auto file = ModelFile::Open(kModel);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto error = [&](const LlamaOptions& options) {
    return std::string(LlamaModel::Load(**file, options).status().message());
  };
  EXPECT_THAT(error({.batch_rows_max = 0}), HasSubstr("batch_rows_max is 0, must be in [1, 16384]"));
  EXPECT_THAT(error({.threads = 257}), HasSubstr("threads is 257, must be in [0, 256]"));
  EXPECT_THAT(error({.block_tokens = 12}), HasSubstr("block_tokens is 12"));
}

class RecordingObserver final : public LayerObserver {
 public:
  void OnLayerWritten(uint32_t layer) override { layers.push_back(layer); }
  std::vector<uint32_t> layers;
};

// Also a batch without logits writes every layer.
TEST(LlamaModel, TellsTheObserverOfEveryLayer) {
  const auto file = ModelFile::Open(kModel);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = LlamaModel::Load(**file, {.threads = 1});
  ASSERT_TRUE(model.ok()) << model.status();
  const kernels::KvLayout layout = (*model)->kv_layout();
  const kernels::Buffer arena(layout.block_bytes());
  const kernels::PagedKvView kv = {.layout = layout, .block_count = 1, .base = arena.data()};
  const uint32_t block = 0, tokens[] = {3, 4};
  const ForwardSequence sequence = {.blocks = absl::MakeConstSpan(&block, 1), .token_count = 2};
  RecordingObserver observer;
  (*model)->Forward({.tokens = tokens, .sequences = absl::MakeConstSpan(&sequence, 1)}, kv, &observer, {});
  EXPECT_THAT(observer.layers, testing::ElementsAre(0, 1));
}

// Logits of some rows are those that all rows would have given.
TEST(LlamaModel, LogitsOfWantedRowsOnly) {
  LlamaHarness model(kModel, {.threads = 2}, 256);
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 40; ++i) tokens.push_back(i * 17 % 1000);
  LlamaHarness::Sequence a = model.NewSequence(40), b = model.NewSequence(40), c = model.NewSequence(40);
  const std::vector<float> all = model.Run({{&a, tokens, 40}});
  LlamaHarness::Sequence d = model.NewSequence(40);
  const std::vector<float> some = model.Run({{&b, tokens, 0}, {&c, tokens, 3}, {&d, absl::MakeConstSpan(tokens).subspan(0, 9), 1}});
  const size_t v = model.vocabulary();
  ASSERT_EQ(some.size(), 4 * v);
  EXPECT_TRUE(std::equal(some.begin(), some.begin() + 3 * v, all.end() - 3 * v));
  EXPECT_TRUE(std::equal(some.begin() + 3 * v, some.end(), all.begin() + 8 * v));
}

}  // namespace
}  // namespace baton::model
