// cos and sin of the rotary embedding for every position, scaling included: what the op rope_append reads.
//
// Frequencies and angles are rounded to f32 as transformers rounds them, so that long contexts agree with it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/buffer.h"
#include "model/llama/llama_config.h"

namespace baton::model {

// Radians per position of each rotated pair, [rope.dimensions / 2]. `frequency_factors` (rope_freqs.weight of a GGUF file;
// empty: none) divide them. Dynamic NTK is the plain table: it holds within the original context only.
std::vector<float> RopeFrequencies(const RopeConfig& rope,
                                   absl::Span<const float> frequency_factors);

// What cos and sin are multiplied by; 1 but for YaRN.
float RopeMagnitude(const RopeConfig& rope);

// Filled as positions are first used, so that a long context costs nothing until it is. Thread-compatible.
class RopeTable {
 public:
  RopeTable() = default;
  // REQUIRES: frequencies.size() * positions_max floats fit in memory twice.
  RopeTable(std::vector<float> frequencies, float magnitude, uint32_t positions_max);

  // After this, rows [0, positions) of cos and sin stand. REQUIRES: positions <= positions_max.
  void Cover(uint32_t positions);

  const float* cos() const { return cos_.as<float>(); }  // [positions, frequencies]
  const float* sin() const { return sin_.as<float>(); }  // [positions, frequencies]

 private:
  std::vector<float> frequencies_;
  float magnitude_ = 1.0f;
  uint32_t positions_max_ = 0;
  uint32_t covered_ = 0;
  kernels::Buffer cos_, sin_;
};

}  // namespace baton::model
