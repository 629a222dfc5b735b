#include "model/sampling/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

namespace baton::model {
namespace {

uint32_t SampleOne(std::vector<float> logits, const SamplingParams& params,
                   const SamplingHistory& history = {}) {
  return Sample(absl::MakeSpan(logits), params, history).token;
}

TEST(Sample, GreedyTakesTheLowestIdOfEqualLogits) {
  std::vector<float> logits(700, 0.5f);
  logits[300] = logits[301] = 2.0f;
  EXPECT_EQ(SampleOne(logits, {}), 300u);
  EXPECT_EQ(SampleOne({NAN, NAN}, {}), 0u);
  EXPECT_EQ(SampleOne({-INFINITY, NAN}, {.temperature = 1.0f}), 0u);
}

TEST(Sample, AddsTheBiasFirst) {
  EXPECT_EQ(SampleOne({1.0f, 2.0f, 3.0f}, {.logit_bias = {{0, 5.0f}, {2, -100.0f}}}), 0u);
}

TEST(Sample, PenalisesRepetitionOfPromptAndOutputOnce) {
  const std::vector<uint32_t> tokens = {0, 0, 1};
  const SamplingHistory history = {.tokens = tokens, .output_start = 2};
  // 4 / 2 = 2, 3.9 / 2, 1.9: once each, whatever the count.
  EXPECT_EQ(SampleOne({4.0f, 3.9f, 1.9f}, {.repetition_penalty = 2.0f}, history), 0u);
  EXPECT_EQ(SampleOne({4.0f, 3.9f, 2.1f}, {.repetition_penalty = 2.0f}, history), 2u);
  // Negative logits are multiplied.
  EXPECT_EQ(SampleOne({-1.0f, -1.0f, -1.5f}, {.repetition_penalty = 2.0f}, history), 2u);
}

TEST(Sample, PenalisesFrequencyAndPresenceOfOutputOnly) {
  const std::vector<uint32_t> tokens = {0, 0, 1, 1, 2};
  const SamplingHistory history = {.tokens = tokens, .output_start = 2};
  EXPECT_EQ(SampleOne({1.0f, 2.0f, 1.9f}, {.frequency_penalty = 0.4f}, history), 2u);
  EXPECT_EQ(SampleOne({1.0f, 2.0f, 1.9f}, {.frequency_penalty = 1.0f}, history), 0u);
  EXPECT_EQ(SampleOne({1.0f, 2.0f, 1.9f}, {.presence_penalty = 0.5f}, history), 1u);
  EXPECT_EQ(SampleOne({1.0f, 2.0f, 1.9f}, {.presence_penalty = 1.5f}, history), 0u);
}

TEST(Sample, DrawsByPositionSeedAndSampleOnly) {
  const std::vector<float> logits(1000, 0.0f);
  const std::vector<uint32_t> tokens(50, 3);
  std::set<uint32_t> drawn;
  for (uint32_t position = 0; position < 50; ++position) {
    SamplingHistory history = {.tokens = absl::MakeConstSpan(tokens).first(position)};
    const SamplingParams params = {.temperature = 1.0f, .seed = 5};
    const uint32_t token = SampleOne(logits, params, history);
    drawn.insert(token);
    history.output_start = position;  // Where the output begins must not matter.
    EXPECT_EQ(SampleOne(logits, params, history), token);
    EXPECT_NE(SampleOne(logits, {.temperature = 1.0f, .seed = 6}, history), token);
    EXPECT_NE(SampleOne(logits, {.temperature = 1.0f, .seed = 5, .sample_index = 1}, history), token);
  }
  EXPECT_GT(drawn.size(), 40u);
}

TEST(Sample, ReportsLogprobsOfTheLogitsAsTheyCame) {
  std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  const SamplingParams params = {.temperature = 0.0f, .logit_bias = {{0, 100.0f}}, .logprobs = 2};
  const SampledToken sampled = Sample(absl::MakeSpan(logits), params, {});
  EXPECT_EQ(sampled.token, 0u);
  ASSERT_TRUE(sampled.logprobs.has_value());
  EXPECT_EQ(sampled.logprobs->chosen->token, 0u);
  EXPECT_NEAR(sampled.logprobs->chosen->logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(sampled.logprobs->top.size(), 2u);
  EXPECT_EQ(sampled.logprobs->top[0].token, 1u);
  EXPECT_NEAR(sampled.logprobs->top[0].logprob, std::log(0.6), 1e-6);
  EXPECT_EQ(sampled.logprobs->top[1].token, 2u);
  EXPECT_NEAR(sampled.logprobs->top[1].logprob, std::log(0.3), 1e-6);
}

TEST(LogprobsOf, MatchesDoublePrecision) {
  std::vector<float> logits(49152);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>((i * 2654435761u % 100003) * 3e-4);
  }
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - 30.0);
  const PositionLogprobs result = LogprobsOf(logits, 7, 20);
  EXPECT_NEAR(result.chosen->logprob, logits[7] - 30.0 - std::log(sum), 1e-5);
  ASSERT_EQ(result.top.size(), 20u);
  for (size_t i = 1; i < 20; ++i) {
    EXPECT_GE(result.top[i - 1].logprob, result.top[i].logprob);
  }
  EXPECT_EQ(LogprobsOf(logits, 7, 20), result);
}

TEST(LogprobsOf, GivesMinusInfinityWhereNothingIsFinite) {
  const std::vector<float> logits(10, NAN);
  const PositionLogprobs result = LogprobsOf(logits, 2, 5);
  EXPECT_EQ(result.chosen->logprob, -INFINITY);
  EXPECT_TRUE(result.top.empty());
}

TEST(ValidateSamplingParams, NamesTheFieldAndItsRange) {
  struct Case {
    SamplingParams params;
    const char* message;
  };
  const Case cases[] = {
      {{.temperature = -1.0f}, "temperature is -1"},
      {{.temperature = NAN}, "temperature is nan"},
      {{.temperature = INFINITY}, "temperature is inf"},
      {{.top_p = 0.0f}, "top_p is 0, must be in (0, 1]"},
      {{.top_p = 1.5f}, "top_p"},
      {{.min_p = 1.5f}, "min_p is 1.5, must be in [0, 1]"},
      {{.repetition_penalty = 0.0f}, "repetition_penalty"},
      {{.presence_penalty = 2.5f}, "presence_penalty is 2.5, must be in [-2, 2]"},
      {{.frequency_penalty = NAN}, "frequency_penalty"},
      {{.logit_bias = {{100, 1.0f}}}, "must be below 100"},
      {{.logit_bias = {{1, 101.0f}}}, "logit_bias of token 1"},
      {{.logit_bias = {{2, 1.0f}, {1, 1.0f}}}, "token 1 is out of order"},
      {{.logit_bias = {{1, 1.0f}, {1, 1.0f}}}, "occurs twice"},
      {{.logit_bias = std::vector<std::pair<uint32_t, float>>(1025)}, "at most 1024"},
      {{.logprobs = 21}, "logprobs is 21, must be in [0, 20]"},
  };
  for (const Case& c : cases) {
    const absl::Status status = Validate(c.params, 100);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(c.message));
  }
  EXPECT_TRUE(Validate(SamplingParams{}, 100).ok());
  EXPECT_TRUE(Validate({.temperature = 1.0f, .logit_bias = {{1, -100.0f}, {99, 100.0f}}}, 100).ok());
}

}  // namespace
}  // namespace baton::model
