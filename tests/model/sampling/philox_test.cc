#include "model/sampling/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace baton::model {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of the authors' Random123 library (kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformAt, DependsOnSeedSampleAndPosition) {
  std::set<double> seen;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32}) {
    for (uint32_t sample : {0u, 1u}) {
      for (uint64_t position : {0ull, 1ull, 1ull << 32}) {
        const double u = UniformAt(seed, sample, position);
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        EXPECT_TRUE(seen.insert(u).second) << seed << " " << sample << " " << position;
      }
    }
  }
  EXPECT_EQ(UniformAt(7, 3, 11), UniformAt(7, 3, 11));
}

}  // namespace
}  // namespace baton::model
