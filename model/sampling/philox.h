// A random number that is a pure function of where it is used: Philox4x32-10 (Salmon et al., "Parallel Random Numbers:
// As Easy as 1, 2, 3", 2011). No state, so nothing to save, send or replay when a sequence moves.
#pragma once

#include <array>
#include <cstdint>

namespace baton::model {

// The block cipher itself: 128 random bits of a counter under a key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), a multiple of 2^-53.
double UniformAt(uint64_t seed, uint32_t sample_index, uint64_t position);

}  // namespace baton::model
