// A real model, the default one, against transformers in fp32; the bar is what llama.cpp loses with its 8-bit activations.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/escaping.h"
#include "kernels/cpu_level.h"
#include "llama_harness.h"
#include "model/weights/mapped_file.h"
#include "nlohmann/json.hpp"
#include "openssl/sha.h"
#include "oracle_dir.h"
#include "tensor_archive.h"

namespace baton::model {
namespace {

using kernels::CpuLevel;
using kernels::KvType;

constexpr uint32_t kArenaTokens = 2048;
constexpr uint32_t kChunkTokens = 256;
// llama.cpp's default line in the oracle's README, and how much worse we may be.
constexpr double kPeerMeanAbsLogprob = 0.0551;
constexpr double kMeanAbsLogprobMax = 1.2 * kPeerMeanAbsLogprob;
constexpr double kTextTop1Min = 0.955;
constexpr double kGreedyTop1Min = 0.965;
constexpr double kClearMargin = 0.2;
constexpr double kClearTop1Min = 0.995;

std::string ModelPath() {
  if (const char* set = std::getenv("BATON_MODEL")) return set;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root = cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return root + "/baton/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::string Sha256Hex(const std::string& path) {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return std::string(file.status().message());
  const absl::Span<const uint8_t> bytes = (*file)->bytes();
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(bytes.data(), bytes.size(), reinterpret_cast<uint8_t*>(digest.data()));
  return absl::BytesToHexString(digest);
}

struct Ratio {
  int hits = 0, total = 0;
  void Add(bool hit) { hits += hit, ++total; }
  double value() const { return static_cast<double>(hits) / total; }
};

class SmolLm2Test : public testing::TestWithParam<std::pair<CpuLevel, KvType>> {
 protected:
  void SetUp() override {
    if (OracleDir().empty()) GTEST_SKIP() << "no oracle: set BATON_ORACLE_DIR";
    if (!std::filesystem::exists(ModelPath())) GTEST_SKIP() << "no model at " << ModelPath();
    const auto& [level, kv_type] = GetParam();
    if (!kernels::Supported(level)) GTEST_SKIP() << "this CPU lacks the level";
    std::ifstream file(OracleDir() + "/smollm2/expected.json");
    expected_ = nlohmann::json::parse(file);
    ASSERT_EQ(Sha256Hex(ModelPath()), expected_.at("sha256").get<std::string>());
    model_ = std::make_unique<LlamaHarness>(
        ModelPath(), LlamaOptions{.cpu_level = level, .threads = 2, .kv_type = kv_type}, kArenaTokens);
  }

  nlohmann::json expected_;
  std::unique_ptr<LlamaHarness> model_;
};

TEST_P(SmolLm2Test, PredictsTheOraclesGreedyTokens) {
  Ratio all, clear;
  for (const auto& c : expected_.at("cases")) {
    const std::vector<uint32_t> prompt = c.at("prompt_ids"), greedy = c.at("greedy_ids");
    const std::vector<double> margins = c.at("greedy_margins");
    model_->Clear();
    LlamaHarness::Sequence sequence =
        model_->NewSequence(static_cast<uint32_t>(prompt.size() + greedy.size()));
    // The prompt without its last token, then that one and the answer: each of its rows predicts a greedy token.
    for (size_t start = 0; start + 1 < prompt.size(); start += kChunkTokens) {
      const size_t count = std::min<size_t>(kChunkTokens, prompt.size() - 1 - start);
      model_->Run({{&sequence, absl::MakeConstSpan(prompt).subspan(start, count), 0}});
    }
    std::vector<uint32_t> rows = {prompt.back()};
    rows.insert(rows.end(), greedy.begin(), greedy.end() - 1);
    const std::vector<float> logits =
        model_->Run({{&sequence, rows, static_cast<uint32_t>(rows.size())}});
    for (size_t i = 0; i < greedy.size(); ++i) {
      const bool hit =
          ArgMax(absl::MakeConstSpan(logits).subspan(i * model_->vocabulary(), model_->vocabulary())) ==
          greedy[i];
      all.Add(hit);
      if (margins[i] > kClearMargin) clear.Add(hit);
    }
  }
  std::printf("%s: top-1 %.4f over %d greedy tokens, %.4f over %d with margin > %.1f\n",
              model_->model().numerics_class().c_str(), all.value(), all.total, clear.value(),
              clear.total, kClearMargin);
  EXPECT_GE(all.value(), kGreedyTop1Min);
  EXPECT_GE(clear.value(), kClearTop1Min);
}

TEST_P(SmolLm2Test, ScoresTheOraclesText) {
  const auto& forced = expected_.at("teacher_forced");
  const std::vector<uint32_t> ids = forced.at("ids"), argmax = forced.at("argmax_ids");
  const std::vector<float> want =
      ReadTensorArchive(OracleDir() + "/smollm2/expected.safetensors").at("teacher_forced.logprobs").values;
  LlamaHarness::Sequence sequence = model_->NewSequence(static_cast<uint32_t>(ids.size()));
  Ratio top1;
  double sum_abs = 0, largest = 0, sum = 0;
  for (size_t start = 0; start < ids.size(); start += kChunkTokens) {
    const size_t count = std::min<size_t>(kChunkTokens, ids.size() - start);
    const std::vector<float> logits = model_->Run(
        {{&sequence, absl::MakeConstSpan(ids).subspan(start, count), static_cast<uint32_t>(count)}});
    for (size_t row = 0; row < count; ++row) {
      const auto got =
          absl::MakeConstSpan(logits).subspan(row * model_->vocabulary(), model_->vocabulary());
      top1.Add(ArgMax(got) == argmax[start + row]);
      if (start + row + 1 == ids.size()) continue;
      const double logprob = LogSoftmax(got)[ids[start + row + 1]];
      const double difference = std::abs(logprob - want[start + row]);
      sum += logprob;
      sum_abs += difference;
      largest = std::max(largest, difference);
    }
  }
  const double mean_abs = sum_abs / static_cast<double>(want.size());
  std::printf("%s: text top-1 %.4f, mean |dlogprob| %.4f (%.2f of llama.cpp's), max %.3f, perplexity %.3f\n",
              model_->model().numerics_class().c_str(), top1.value(), mean_abs,
              mean_abs / kPeerMeanAbsLogprob, largest, std::exp(-sum / static_cast<double>(want.size())));
  EXPECT_LE(mean_abs, kMeanAbsLogprobMax);
  EXPECT_GE(top1.value(), kTextTop1Min);
}

// Both levels that may be a machine's best, with the default KV type, and f16 to say what that choice costs. The reference
// would take minutes.
INSTANTIATE_TEST_SUITE_P(Levels, SmolLm2Test,
                         testing::Values(std::pair(CpuLevel::kAvx512NoBf16, KvType::kBf16),
                                         std::pair(CpuLevel::kAvx512, KvType::kBf16),
                                         std::pair(CpuLevel::kAvx512NoBf16, KvType::kF16)),
                         [](const auto& info) {
                           return std::string(info.param.first == CpuLevel::kAvx512 ? "avx512_" : "avx512_nobf16_") +
                                  (info.param.second == KvType::kBf16 ? "bf16" : "f16");
                         });

}  // namespace
}  // namespace baton::model
