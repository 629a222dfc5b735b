// What it costs to draw a token from one row of logits: microseconds for each kind of sampling, one JSON object a line.
//
//   {"name": "sampling_top_k_40", "vocabulary": 49152, "microseconds": 12.3}
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "model/sampling/sampling.h"

namespace baton::model {
namespace {

constexpr uint32_t kVocabulary = 49152;
constexpr int kRepeats = 50;

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Shaped as a language model's: most tokens far below a few good ones.
std::vector<float> ModelLikeLogits(float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = normal(random);
  for (int i = 0; i < 10; ++i) logits[random() % kVocabulary] = 18.0f - static_cast<float>(i);
  return logits;
}

void Measure(const char* name, const std::vector<float>& logits, const SamplingParams& params,
             const SamplingHistory& history) {
  double best = 1e9;
  uint64_t checksum = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<float> scratch = logits;
    const double start = NowSeconds();
    checksum += Sample(absl::MakeSpan(scratch), params, history).token;
    best = std::min(best, NowSeconds() - start);
  }
  std::printf("{\"name\": \"sampling_%s\", \"vocabulary\": %u, \"microseconds\": %.1f, \"token\": %d}\n",
              name, kVocabulary, best * 1e6, static_cast<int>(checksum / kRepeats));
}

void MeasureAll() {
  const std::vector<float> logits = ModelLikeLogits(3.0f);
  const std::vector<float> flat = ModelLikeLogits(0.1f);
  std::vector<uint32_t> tokens(4096);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i * 7 % kVocabulary;
  const SamplingHistory history = {.tokens = tokens, .output_start = 2048};
  Measure("greedy", logits, {}, history);
  Measure("greedy_logprobs_20", logits, {.logprobs = 20}, history);
  Measure("temperature", logits, {.temperature = 1.0f}, history);
  Measure("top_k_40", logits, {.temperature = 0.8f, .top_k = 40}, history);
  Measure("top_k_40_top_p", logits, {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f}, history);
  Measure("top_p", logits, {.temperature = 0.8f, .top_p = 0.95f}, history);
  Measure("top_p_flat", flat, {.temperature = 2.0f, .top_p = 0.95f}, history);
  Measure("min_p", logits, {.temperature = 0.8f, .min_p = 0.05f}, history);
  Measure("penalties_4096", logits, {.repetition_penalty = 1.1f, .frequency_penalty = 0.5f}, history);
}

}  // namespace
}  // namespace baton::model

int main() { baton::model::MeasureAll(); }
