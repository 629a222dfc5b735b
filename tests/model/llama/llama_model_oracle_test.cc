// The forward pass against transformers: on the oracle's tiny models where it is at hand, and on the committed ones always.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "kernels/cpu_level.h"
#include "llama_harness.h"
#include "llama_oracle.h"
#include "oracle_dir.h"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

using kernels::CpuLevel;
using kernels::KvType;

constexpr uint32_t kArenaTokens = 512;
constexpr double kF32LogitMax = 1e-3;        // README: fp32 weights and activations.
constexpr double kGreedyMarginMin = 2 * kF32LogitMax;
constexpr double kQuantizedKlMax = 0.01;     // README: 8-bit activations, tiny models.
constexpr double kQuantizedTop1Min = 0.90;

struct OracleCase {
  std::string name;
  bool committed;  // Under tests/golden; otherwise under the oracle's folder.
  std::string model;
  std::string stem;  // Of expected.json and expected.safetensors.
};

OracleCase Folder(bool committed, const std::string& folder) {
  const std::string name = folder.substr(folder.find_last_of('/') + 1);
  return {(committed ? "Golden_" : "Oracle_") + name, committed, folder, folder + "/"};
}

OracleCase Gguf(bool committed, const std::string& stem) {
  const std::string name = stem.substr(stem.find_last_of('/') + 1);
  return {(committed ? "Golden_" : "Oracle_") + name, committed, stem + ".gguf", stem + "."};
}

std::string CaseName(std::string name, CpuLevel level) {
  name += "_" + std::string(kernels::CpuLevelName(level));
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

class OracleTest : public testing::TestWithParam<std::tuple<OracleCase, CpuLevel>> {
 protected:
  void SetUp() override {
    const auto& [c, level] = GetParam();
    root_ = c.committed ? SourceDir() + "/tests/golden" : OracleDir();
    if (root_.empty()) GTEST_SKIP() << "no oracle: set BATON_ORACLE_DIR";
    if (!kernels::Supported(level)) GTEST_SKIP() << "this CPU lacks the level";
  }

  LlamaHarness Load(std::optional<KvType> kv_type) {
    const auto& [c, level] = GetParam();
    return LlamaHarness(root_ + "/" + c.model, {.cpu_level = level, .threads = 2, .kv_type = kv_type},
                        kArenaTokens);
  }
  LlamaOracle Expected() const { return LlamaOracle(root_ + "/" + std::get<0>(GetParam()).stem); }

  std::string root_;
};

double MaxAbsDifference(absl::Span<const float> a, absl::Span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN too.
  }
  return largest;
}

// Tokens after the prompt, one by one, as far as the oracle's margins decide them.
void ExpectGreedy(LlamaHarness& model, LlamaHarness::Sequence& sequence, std::vector<float> logits,
                  const OraclePrompt& prompt) {
  for (size_t i = 0; i < prompt.greedy_ids.size(); ++i) {
    if (sequence.length >= model.model().info().context_tokens) return;
    if (prompt.greedy_margins[i] < kGreedyMarginMin) return;
    const uint32_t token = ArgMax(logits);
    ASSERT_EQ(token, prompt.greedy_ids[i]) << prompt.id << " step " << i;
    EXPECT_NEAR(LogSoftmax(logits)[token], prompt.greedy_logprobs[i], kF32LogitMax)
        << prompt.id << " step " << i;
    logits = model.Run({{&sequence, absl::MakeConstSpan(&token, 1), 1}});
  }
}

using ExactTest = OracleTest;

TEST_P(ExactTest, LogitsAndGreedyTokensAreTransformers) {
  LlamaHarness model = Load(KvType::kF32);
  const LlamaOracle oracle = Expected();
  const uint32_t context = model.model().info().context_tokens;
  int compared = 0;
  for (const OraclePrompt& prompt : oracle.prompts) {
    if (prompt.prompt_ids.size() > context) continue;  // Dynamic NTK: within the original context.
    model.Clear();
    LlamaHarness::Sequence sequence = model.NewSequence(
        static_cast<uint32_t>(prompt.prompt_ids.size() + prompt.greedy_ids.size()));
    const std::vector<float> logits = model.Run({{&sequence, prompt.prompt_ids, 1}});
    EXPECT_LE(MaxAbsDifference(logits, oracle.tensors.at("logits." + prompt.id).values), kF32LogitMax)
        << prompt.id;
    ExpectGreedy(model, sequence, logits, prompt);
    ++compared;
    if (prompt.id != "p4") continue;
    model.Clear();
    LlamaHarness::Sequence again = model.NewSequence(static_cast<uint32_t>(prompt.prompt_ids.size()));
    EXPECT_LE(MaxAbsDifference(model.Feed(again, prompt.prompt_ids, UINT32_MAX),
                               oracle.tensors.at("all_logits.p4").values),
              kF32LogitMax);
  }
  EXPECT_GE(compared, 7);
}

using QuantizedTest = OracleTest;

TEST_P(QuantizedTest, DistributionsAreTransformers) {
  LlamaHarness model = Load(std::nullopt);
  const LlamaOracle oracle = Expected();
  double kl = 0;
  int kl_rows = 0, agree = 0, positions = 0;
  const auto add_kl = [&](absl::Span<const float> expected, absl::Span<const float> got) {
    kl += KlDivergence(expected, got);
    ++kl_rows;
  };
  const uint32_t vocabulary = model.vocabulary();
  for (const OraclePrompt& prompt : oracle.prompts) {
    model.Clear();
    // The prompt and all greedy tokens but the last: rows from the prompt's last on predict greedy_ids.
    std::vector<uint32_t> tokens = prompt.prompt_ids;
    tokens.insert(tokens.end(), prompt.greedy_ids.begin(), prompt.greedy_ids.end() - 1);
    const auto greedy_rows = static_cast<uint32_t>(prompt.greedy_ids.size());
    LlamaHarness::Sequence sequence = model.NewSequence(static_cast<uint32_t>(tokens.size()));
    const std::vector<float> logits = model.Run({{&sequence, tokens, greedy_rows}});
    for (uint32_t row = 0; row < greedy_rows; ++row) {
      const auto got = absl::MakeConstSpan(logits).subspan(uint64_t{row} * vocabulary, vocabulary);
      agree += ArgMax(got) == prompt.greedy_ids[row];
      ++positions;
      if (row == 0) add_kl(oracle.tensors.at("logits." + prompt.id).values, got);
      if (row > 0 && prompt.id == "p4") {
        add_kl(absl::MakeConstSpan(oracle.tensors.at("greedy_logits.p4").values)
                   .subspan(uint64_t{row} * vocabulary, vocabulary),
               got);
      }
    }
  }
  ASSERT_GT(kl_rows, 0);
  const double mean_kl = kl / kl_rows, top1 = static_cast<double>(agree) / positions;
  std::printf("%s: mean KL %.2e over %d rows, top-1 %.4f over %d\n",
              std::get<0>(GetParam()).name.c_str(), mean_kl, kl_rows, top1, positions);
  EXPECT_LE(mean_kl, kQuantizedKlMax);
  EXPECT_GE(top1, kQuantizedTop1Min);
}

const auto kLevels = testing::Values(CpuLevel::kReference, CpuLevel::kAvx2, CpuLevel::kAvx512NoBf16,
                                     CpuLevel::kAvx512);
const auto kName = [](const auto& info) {
  return CaseName(std::get<0>(info.param).name, std::get<1>(info.param));
};

INSTANTIATE_TEST_SUITE_P(
    Models, ExactTest,
    testing::Combine(testing::Values(Folder(false, "models/llama2-mha"), Folder(false, "models/llama3"),
                                     Folder(false, "models/llama-rope-linear"),
                                     Folder(false, "models/llama-rope-dynamic"),
                                     Folder(false, "models/llama-rope-yarn"),
                                     Folder(false, "models/llama-bias-tied"),
                                     Gguf(false, "gguf/llama3/tiny-llama3.F32"),
                                     Gguf(false, "gguf/llama3/tiny-llama3.F16"),
                                     Folder(true, "llama-f32"), Folder(true, "llama-bf16")),
                     kLevels),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Models, QuantizedTest,
    testing::Combine(testing::Values(Gguf(false, "gguf/llama3/tiny-llama3.Q8_0"),
                                     Gguf(false, "gguf/llama3/tiny-llama3.Q4_0"),
                                     Gguf(false, "gguf/llama3/tiny-llama3.Q4_1"),
                                     Gguf(false, "gguf/llama3/tiny-llama3.Q4_K_M"),
                                     Gguf(false, "gguf/llama3/tiny-llama3.Q6_K"),
                                     Gguf(true, "tiny.Q4_1"), Gguf(true, "tiny.Q6_K")),
                     kLevels),
    kName);

}  // namespace
}  // namespace baton::model
