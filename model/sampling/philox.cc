#include "model/sampling/philox.h"

namespace baton::model {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;  // The golden ratio.
  constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1.
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

double UniformAt(uint64_t seed, uint32_t sample_index, uint64_t position) {
  const std::array<uint32_t, 4> bits = Philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), sample_index, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t random = (uint64_t{bits[1]} << 32) | bits[0];
  return static_cast<double>(random >> 11) * 0x1p-53;
}

}  // namespace baton::model
