// Against transformers' logits processors: the cases of the oracle's samplers/ folder (BATON_ORACLE_DIR).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/sampling/logit_blocks.h"
#include "model/sampling/penalties.h"
#include "model/sampling/sampling.h"
#include "model/sampling/token_distribution.h"
#include "tests/source_dir.h"

namespace baton::model {
namespace {

using nlohmann::json;

std::filesystem::path SamplersFolder() {
  const char* folder = std::getenv("BATON_ORACLE_DIR");
  return std::filesystem::path(folder != nullptr ? folder : SourceDir() + "/../shared/oracle") /
         "samplers";
}

// All tensors are f32 vectors.
std::map<std::string, std::vector<float>> ReadSafetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, '\0');
  file.read(header.data(), header.size());
  const json entries = json::parse(header);
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, tensor] : entries.items()) {
    if (name == "__metadata__") continue;
    const uint64_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    std::vector<float>& values = tensors[name];
    values.resize((end - begin) / sizeof(float));
    file.seekg(sizeof(header_bytes) + header_bytes + begin);
    file.read(reinterpret_cast<char*>(values.data()), end - begin);
  }
  return tensors;
}

SamplingParams ParamsOf(const json& from) {
  SamplingParams params = {.temperature = from.value("temperature", 1.0f),
                           .top_k = from.value("top_k", 0u),
                           .top_p = from.value("top_p", 1.0f),
                           .min_p = from.value("min_p", 0.0f),
                           .repetition_penalty = from.value("repetition_penalty", 1.0f),
                           .presence_penalty = from.value("presence_penalty", 0.0f),
                           .frequency_penalty = from.value("frequency_penalty", 0.0f)};
  std::map<uint32_t, float> bias;
  if (from.contains("logit_bias")) {
    for (const auto& [token, value] : from["logit_bias"].items()) {
      bias[static_cast<uint32_t>(std::stoul(token))] = value;
    }
  }
  params.logit_bias.assign(bias.begin(), bias.end());
  return params;
}

std::vector<double> ProbabilitiesOf(std::vector<float> logits, const SamplingParams& params,
                                    const SamplingHistory& history) {
  std::vector<double> probabilities(logits.size(), 0.0);
  if (params.temperature == 0.0f) {
    probabilities[Sample(absl::MakeSpan(logits), params, history).token] = 1.0;
    return probabilities;
  }
  ApplyPenalties(absl::MakeSpan(logits), params, history);
  std::vector<float> maxima(LogitBlockCount(logits.size()));
  BlockMaxima(logits, absl::MakeSpan(maxima));
  const TokenDistribution distribution(absl::MakeSpan(logits), maxima, params);
  for (uint32_t i = 0; i < logits.size(); ++i) probabilities[i] = distribution.Probability(i);
  return probabilities;
}

TEST(SamplingOracle, GivesTheProbabilitiesOfTransformers) {
  const std::filesystem::path folder = SamplersFolder();
  if (!std::filesystem::exists(folder / "cases.json")) {
    GTEST_SKIP() << "no oracle at " << folder << "; set BATON_ORACLE_DIR";
  }
  std::ifstream cases_file(folder / "cases.json");
  const json cases = json::parse(cases_file)["cases"];
  const auto tensors = ReadSafetensors(folder / "cases.safetensors");
  int compared = 0;
  for (const json& c : cases) {
    if (c.contains("note") || c["params"].contains("typical_p")) continue;
    SCOPED_TRACE(c["probs"].get<std::string>() + " " + c["params"].dump());
    std::vector<uint32_t> tokens = c["prompt_ids"];
    const auto output_start = static_cast<uint32_t>(tokens.size());
    for (const uint32_t token : c["output_ids"]) tokens.push_back(token);
    const std::vector<double> got =
        ProbabilitiesOf(tensors.at(c["logits"]), ParamsOf(c["params"]),
                        {.tokens = tokens, .output_start = output_start});
    const std::vector<float>& want = tensors.at(c["probs"]);
    ASSERT_EQ(got.size(), want.size());
    int kept = 0;
    int denormal = 0;  // We round weights below 2^-126 to 0.
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-5) << "token " << i;
      if (got[i] > 0.0) ++kept;
      if (got[i] == 0.0 && want[i] > 0.0f && want[i] < 1e-37f) ++denormal;
    }
    EXPECT_EQ(kept + denormal, c["kept"].get<int>());
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace baton::model
