#include "model/llama/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace baton::model {
namespace {

RopeConfig Plain() { return {.theta = 10000.0f, .dimensions = 8}; }

TEST(RopeTable, PlainFrequencies) {
  const std::vector<float> frequencies = RopeFrequencies(Plain(), {});
  ASSERT_EQ(frequencies.size(), 4u);
  const float want[] = {1.0f, 0.1f, 0.01f, 0.001f};
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(frequencies[i], want[i]);
}

TEST(RopeTable, LinearDividesAndDynamicKeeps) {
  RopeConfig rope = Plain();
  rope.factor = 4;
  rope.scaling = RopeScaling::kLinear;
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, {})[1], 0.025f);
  rope.scaling = RopeScaling::kDynamic;
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, {})[1], 0.1f);
}

TEST(RopeTable, Llama3KeepsFastPairsAndDividesSlowOnes) {
  RopeConfig rope = Plain();
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.original_context_tokens = 64;
  // Turns within the context: 10.2, 1.02, 0.1, 0.01; kept from 4 on, divided up to 1.
  const std::vector<float> frequencies = RopeFrequencies(rope, {});
  EXPECT_FLOAT_EQ(frequencies[0], 1.0f);
  const double smooth = (64 * 0.1 / (2 * M_PI) - 1) / 3;
  EXPECT_NEAR(frequencies[1], (1 - smooth) * 0.1 / 8 + smooth * 0.1, 1e-7);
  EXPECT_FLOAT_EQ(frequencies[2], 0.01f / 8);
  EXPECT_FLOAT_EQ(frequencies[3], 0.001f / 8);
}

TEST(RopeTable, YarnRampsBetweenItsCorrections) {
  RopeConfig rope = Plain();
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 4;
  rope.original_context_tokens = 64;
  // Corrections: 32 turns lie before pair 0, 1 turn at pair 1.008, so the ramp goes from 0 to 2.
  const std::vector<float> frequencies = RopeFrequencies(rope, {});
  EXPECT_FLOAT_EQ(frequencies[0], 1.0f);
  EXPECT_FLOAT_EQ(frequencies[1], 0.5f * 0.1f + 0.5f * 0.025f);
  EXPECT_FLOAT_EQ(frequencies[2], 0.0025f);
  EXPECT_FLOAT_EQ(RopeMagnitude(rope), static_cast<float>(0.1 * std::log(4.0) + 1));
  rope.attention_factor = 1.5f;
  EXPECT_EQ(RopeMagnitude(rope), 1.5f);
  EXPECT_EQ(RopeMagnitude(Plain()), 1.0f);
}

TEST(RopeTable, FactorsDivide) {
  EXPECT_FLOAT_EQ(RopeFrequencies(Plain(), {1, 2, 4, 8})[3], 0.001f / 8);
}

TEST(RopeTable, FillsPositionsAsTheyAreUsed) {
  RopeTable table({1.0f, 0.5f}, 2.0f, 1000);
  for (const uint32_t positions : {1u, 3u, 300u, 1000u}) {
    table.Cover(positions);
    const uint32_t last = positions - 1;
    EXPECT_FLOAT_EQ(table.cos()[last * 2 + 1], 2 * static_cast<float>(std::cos(last * 0.5)));
    EXPECT_FLOAT_EQ(table.sin()[last * 2], 2 * static_cast<float>(std::sin(static_cast<double>(last))));
  }
}

}  // namespace
}  // namespace baton::model
