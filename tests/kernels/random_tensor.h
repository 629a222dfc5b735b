// Random weights in each file format, for the kernel tests and benchmarks.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/tensor_view.h"

namespace baton::kernels {

inline constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBf16,
                                           TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0,
                                           TensorType::kQ4_K, TensorType::kQ6_K};

// Owns the bytes of a TensorView. Weights are about normal with deviation 0.05.
class RandomTensor {
 public:
  RandomTensor(TensorType type, uint64_t rows, uint64_t columns, uint32_t seed) {
    view_ = {.type = type, .rows = rows, .columns = columns};
    bytes_.resize(view_.bytes());
    view_.data = bytes_.data();
    std::mt19937 random(seed);
    const uint64_t block_count = rows * columns / BlockElements(type);
    for (uint64_t i = 0; i < block_count; ++i) {
      FillBlock(bytes_.data() + i * BlockBytes(type), random);
    }
  }

  const TensorView& view() const { return view_; }

 private:
  // Scales that differ from block to block, as in real files; minima of both signs.
  static void PutHalf(uint8_t* at, float value) {
    const uint16_t half = FloatToHalf(value);
    std::memcpy(at, &half, sizeof(half));
  }

  void FillBlock(uint8_t* block, std::mt19937& random) {
    std::normal_distribution<float> weight(0.0f, 0.05f);
    std::uniform_real_distribution<float> near_one(0.2f, 1.8f);
    if (BlockElements(view_.type) == 1) {
      const float value = weight(random);
      if (view_.type == TensorType::kF32) std::memcpy(block, &value, sizeof(value));
      if (view_.type == TensorType::kF16) PutHalf(block, value);
      const uint16_t bf16 = FloatToBf16(value);
      if (view_.type == TensorType::kBf16) std::memcpy(block, &bf16, sizeof(bf16));
      return;
    }
    for (uint32_t i = 0; i < BlockBytes(view_.type); ++i) block[i] = static_cast<uint8_t>(random());
    switch (view_.type) {
      case TensorType::kQ4_0:
        PutHalf(block, 0.01f * near_one(random));
        break;
      case TensorType::kQ4_1:
        PutHalf(block, 0.01f * near_one(random));
        PutHalf(block + 2, -0.075f * near_one(random) + weight(random));
        break;
      case TensorType::kQ8_0:
        PutHalf(block, 0.0007f * near_one(random));
        break;
      case TensorType::kQ4_K:
        PutHalf(block, 0.0003f * near_one(random));
        PutHalf(block + 2, 0.002f * near_one(random));
        break;
      case TensorType::kQ6_K:
        PutHalf(block + 208, 0.00005f * near_one(random));
        break;
      default:
        break;
    }
  }

  std::vector<uint8_t> bytes_;
  TensorView view_;
};

}  // namespace baton::kernels
