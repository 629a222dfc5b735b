#include "model/sampling/top_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>

#include "model/sampling/logit_blocks.h"

namespace baton::model {
namespace {

std::vector<float> MaximaOf(const std::vector<float>& logits) {
  std::vector<float> maxima(LogitBlockCount(logits.size()));
  BlockMaxima(logits, absl::MakeSpan(maxima));
  return maxima;
}

// Few distinct values, so that ties abound.
std::vector<float> TiedLogits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(random() % 50) - 20.0f;
  return logits;
}

TEST(TopLogits, AgreeWithAFullSort) {
  for (const size_t vocabulary : {1u, 7u, 128u, 129u, 1000u, 5000u}) {
    const std::vector<float> logits = TiedLogits(vocabulary, static_cast<uint32_t>(vocabulary));
    const std::vector<float> maxima = MaximaOf(logits);
    std::vector<uint32_t> sorted(vocabulary);
    for (uint32_t i = 0; i < vocabulary; ++i) sorted[i] = i;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    EXPECT_EQ(ArgMax(logits, maxima), sorted[0]);
    for (const size_t count : {1u, 2u, 20u, 39u, 40u, 500u, 6000u}) {
      const std::vector<TokenLogit> top = TopLogits(logits, maxima, count);
      ASSERT_EQ(top.size(), std::min(count, vocabulary));
      for (size_t i = 0; i < top.size(); ++i) {
        EXPECT_EQ(top[i].token, sorted[i]) << vocabulary << " " << count << " " << i;
        EXPECT_EQ(top[i].logit, logits[sorted[i]]);
      }
      const float kth = KthLargestLogit(logits, maxima, count);
      if (count <= vocabulary) {
        EXPECT_EQ(kth, logits[sorted[count - 1]]);
      } else {
        EXPECT_EQ(kth, -INFINITY);
      }
    }
  }
}

TEST(TopLogits, LeaveOutNanAndBoundInfinity) {
  std::vector<float> logits(300, NAN);
  logits[200] = 3.0f;
  logits[299] = INFINITY;
  const std::vector<float> maxima = MaximaOf(logits);
  const std::vector<TokenLogit> top = TopLogits(logits, maxima, 20);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].token, 299u);
  EXPECT_EQ(top[0].logit, FLT_MAX);
  EXPECT_EQ(top[1].token, 200u);
  EXPECT_EQ(ArgMax(logits, maxima), 299u);
  EXPECT_EQ(KthLargestLogit(logits, maxima, 2), 3.0f);
  EXPECT_EQ(KthLargestLogit(logits, maxima, 3), -INFINITY);
}

TEST(BlockWeights, AreExpWithinRoundingAndExactAtTheMaximum) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 5.0f - 0.1f * static_cast<float>(i);
  const std::vector<float> maxima = MaximaOf(logits);
  std::vector<float> weights(logits.size()), sums(maxima.size());
  BlockWeights(logits, maxima,
               {.maximum = 5.0f, .temperature = 0.7f, .floor = -INFINITY, .weight_min = 0.0f},
               absl::MakeSpan(weights), absl::MakeSpan(sums));
  EXPECT_EQ(weights[0], 1.0f);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double want = std::exp((double{logits[i]} - 5.0) / 0.7);
    EXPECT_NEAR(weights[i], want, 1e-5 * want + 1e-37) << i;
    if (want > 1e-3) {
      EXPECT_NEAR(weights[i], want, 1e-6 * want) << i;
    }
  }
}

// The bits that each of the three register widths gave.
TEST(BlockWeights, HaveTheSameBitsOnEveryCpu) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i * 2654435761u % 100003) * 2e-4f;
  }
  const std::vector<float> maxima = MaximaOf(logits);
  std::vector<float> weights(logits.size()), sums(maxima.size());
  BlockWeights(logits, maxima,
               {.maximum = 20.0f, .temperature = 1.3f, .floor = -INFINITY, .weight_min = 0.0f},
               absl::MakeSpan(weights), absl::MakeSpan(sums));
  uint64_t digest = 14695981039346656037u;  // FNV-1a.
  for (const std::vector<float>& values : {weights, sums}) {
    for (const float value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      digest = (digest ^ bits) * 1099511628211u;
    }
  }
  EXPECT_EQ(digest, 11498033681263692779u);
}

}  // namespace
}  // namespace baton::model
