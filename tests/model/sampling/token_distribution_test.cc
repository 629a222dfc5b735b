#include "model/sampling/token_distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "model/sampling/logit_blocks.h"
#include "model/sampling/philox.h"

namespace baton::model {
namespace {

std::vector<float> MaximaOf(const std::vector<float>& logits) {
  std::vector<float> maxima(LogitBlockCount(logits.size()));
  BlockMaxima(logits, absl::MakeSpan(maxima));
  return maxima;
}

std::vector<float> GaussianLogits(size_t count, float deviation) {
  std::mt19937 random(42);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<double> ProbabilitiesOf(std::vector<float> logits, const SamplingParams& params) {
  const std::vector<float> maxima = MaximaOf(logits);
  const TokenDistribution distribution(absl::MakeSpan(logits), maxima, params);
  std::vector<double> probabilities(logits.size());
  for (uint32_t i = 0; i < logits.size(); ++i) probabilities[i] = distribution.Probability(i);
  return probabilities;
}

// The definition: sort, cut, normalise.
std::vector<double> ExpectedProbabilities(const std::vector<float>& logits,
                                          const SamplingParams& params) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  const double maximum = logits[order[0]];
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((logits[i] - maximum) / params.temperature);
    if (weights[i] < params.min_p) weights[i] = 0.0;
  }
  if (params.top_k > 0 && params.top_k < logits.size()) {
    const float kth = logits[order[params.top_k - 1]];
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] < kth) weights[i] = 0.0;
    }
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0.0;
  for (const uint32_t token : order) {
    if (reached >= params.top_p * total) weights[token] = 0.0;
    reached += weights[token];
  }
  const double kept = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= kept;
  return weights;
}

struct FilterCase {
  const char* name;
  SamplingParams params;
};

TEST(TokenDistribution, AgreesWithTheDefinition) {
  const FilterCase cases[] = {
      {"plain", {.temperature = 1.0f}},
      {"hot", {.temperature = 2.5f}},
      {"cold", {.temperature = 0.1f}},
      {"min_p", {.temperature = 1.0f, .min_p = 0.02f}},
      {"min_p_one", {.temperature = 1.0f, .min_p = 1.0f}},
      {"top_k", {.temperature = 1.0f, .top_k = 40}},
      {"top_k_one", {.temperature = 1.0f, .top_k = 1}},
      {"top_k_many", {.temperature = 1.0f, .top_k = 700}},
      {"top_k_all", {.temperature = 1.0f, .top_k = 100000}},
      {"top_p", {.temperature = 1.0f, .top_p = 0.9f}},
      {"top_p_tiny", {.temperature = 1.0f, .top_p = 1e-6f}},
      {"top_p_high", {.temperature = 0.7f, .top_p = 0.9999f}},
      {"all", {.temperature = 0.8f, .top_k = 200, .top_p = 0.8f, .min_p = 0.001f}},
  };
  for (const size_t vocabulary : {1u, 2u, 127u, 320u, 5001u}) {
    for (const float deviation : {0.5f, 4.0f}) {
      const std::vector<float> logits = GaussianLogits(vocabulary, deviation);
      for (const FilterCase& c : cases) {
        const std::vector<double> want = ExpectedProbabilities(logits, c.params);
        const std::vector<double> got = ProbabilitiesOf(logits, c.params);
        for (size_t i = 0; i < vocabulary; ++i) {
          ASSERT_NEAR(got[i], want[i], 1e-6) << c.name << " " << vocabulary << " token " << i;
        }
      }
    }
  }
}

TEST(TokenDistribution, KeepsTiesWithTheKth) {
  const std::vector<double> p =
      ProbabilitiesOf({1.0f, 3.0f, 2.0f, 2.0f, 2.0f, 0.0f}, {.temperature = 1.0f, .top_k = 2});
  EXPECT_GT(p[1], 0.0);
  for (const int tied : {2, 3, 4}) EXPECT_GT(p[tied], 0.0);
  EXPECT_EQ(p[0], 0.0);
  EXPECT_EQ(p[5], 0.0);
}

TEST(TokenDistribution, TopPTakesTheLowestIdsOfEqualTokens) {
  const std::vector<double> p =
      ProbabilitiesOf(std::vector<float>(1000, 1.5f), {.temperature = 1.0f, .top_p = 0.25f});
  for (int i = 0; i < 250; ++i) ASSERT_NEAR(p[i], 1.0 / 250, 1e-9) << i;
  for (int i = 250; i < 1000; ++i) ASSERT_EQ(p[i], 0.0) << i;
}

TEST(TokenDistribution, SurvivesNanAndInfinity) {
  std::vector<float> logits(500, NAN);
  logits[3] = -INFINITY;
  logits[130] = 1.0f;
  logits[131] = 1.0f;
  std::vector<double> p = ProbabilitiesOf(logits, {.temperature = 1.0f, .top_k = 300, .top_p = 0.99f});
  EXPECT_NEAR(p[130], 0.5, 1e-9);
  EXPECT_NEAR(p[131], 0.5, 1e-9);
  logits[400] = INFINITY;
  p = ProbabilitiesOf(logits, {.temperature = 0.5f, .top_p = 0.99f});
  EXPECT_EQ(p[400], 1.0);
}

TEST(TokenDistribution, DrawFollowsTheOrderOfIds) {
  std::vector<float> logits(1000, -INFINITY);
  for (const int token : {10, 200, 990}) logits[token] = 0.0f;
  const std::vector<float> maxima = MaximaOf(logits);
  const TokenDistribution distribution(absl::MakeSpan(logits), maxima, {.temperature = 1.0f});
  EXPECT_EQ(distribution.Draw(0.0), 10u);
  EXPECT_EQ(distribution.Draw(0.33), 10u);
  EXPECT_EQ(distribution.Draw(0.34), 200u);
  EXPECT_EQ(distribution.Draw(0.67), 990u);
  EXPECT_EQ(distribution.Draw(1.0 - 0x1p-53), 990u);
}

// Pearson's chi-square over the tokens that are expected often enough; 99.99 % quantile by Wilson and Hilferty.
TEST(TokenDistribution, DrawsInProportion) {
  constexpr int kDraws = 200000;
  std::vector<float> logits = GaussianLogits(300, 1.0f);
  const std::vector<float> maxima = MaximaOf(logits);
  const TokenDistribution distribution(absl::MakeSpan(logits), maxima,
                                       {.temperature = 1.0f, .top_p = 0.95f});
  std::vector<int> drawn(300, 0);
  for (int i = 0; i < kDraws; ++i) ++drawn[distribution.Draw(UniformAt(9, 0, i))];
  double chi_square = 0.0;
  int cells = 0;
  for (uint32_t token = 0; token < 300; ++token) {
    const double expected = kDraws * distribution.Probability(token);
    if (expected == 0.0) {
      ASSERT_EQ(drawn[token], 0) << token;
      continue;
    }
    chi_square += (drawn[token] - expected) * (drawn[token] - expected) / expected;
    ++cells;
  }
  ASSERT_GT(cells, 100);
  const double freedom = cells - 1;
  const double spread = 2.0 / (9.0 * freedom);
  const double quantile = freedom * std::pow(1.0 - spread + 3.719 * std::sqrt(spread), 3.0);
  EXPECT_LT(chi_square, quantile);
}

}  // namespace
}  // namespace baton::model
