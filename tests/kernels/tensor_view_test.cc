#include "kernels/tensor_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/kernels/random_tensor.h"

namespace baton::kernels {
namespace {

std::vector<float> Dequantize(TensorType type, const std::vector<uint8_t>& bytes) {
  const uint64_t columns = bytes.size() / BlockBytes(type) * BlockElements(type);
  std::vector<float> out(columns);
  DequantizeRow({type, 1, columns, bytes.data()}, 0, absl::MakeSpan(out));
  return out;
}

void PutHalf(std::vector<uint8_t>& bytes, size_t at, float value) {
  const uint16_t half = FloatToHalf(value);
  std::memcpy(&bytes[at], &half, 2);
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_EQ(FloatToHalf(value) & 0x7C00, 0x7C00);
      EXPECT_NE(FloatToHalf(value) & 0x03FF, 0);
    } else {
      ASSERT_EQ(FloatToHalf(value), half);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3C00);             // A tie: down to even.
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-10f + 0x1p-11f), 0x3C02);  // A tie: up to even.
  EXPECT_EQ(FloatToHalf(std::nextafter(1.0f + 0x1p-11f, 2.0f)), 0x3C01);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-0x1p-24f), 0x8001);
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(FloatToBf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3F82);
  EXPECT_EQ(Bf16ToFloat(0xC040), -3.0f);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(Bf16ToFloat(FloatToBf16(std::numeric_limits<float>::max()))));
}

TEST(DequantizeRow, Q4_0) {
  std::vector<uint8_t> block(18);
  PutHalf(block, 0, 0.5f);
  block[2] = 0xF0;
  block[17] = 0x9A;
  const std::vector<float> w = Dequantize(TensorType::kQ4_0, block);
  EXPECT_EQ(w[0], 0.5f * (0 - 8));
  EXPECT_EQ(w[16], 0.5f * (15 - 8));
  EXPECT_EQ(w[15], 0.5f * (10 - 8));
  EXPECT_EQ(w[31], 0.5f * (9 - 8));
}

TEST(DequantizeRow, Q4_1) {
  std::vector<uint8_t> block(20);
  PutHalf(block, 0, 0.5f);
  PutHalf(block, 2, -3.0f);
  block[4] = 0xF1;
  const std::vector<float> w = Dequantize(TensorType::kQ4_1, block);
  EXPECT_EQ(w[0], 0.5f * 1 - 3.0f);
  EXPECT_EQ(w[16], 0.5f * 15 - 3.0f);
  EXPECT_EQ(w[1], -3.0f);
}

TEST(DequantizeRow, Q8_0) {
  std::vector<uint8_t> block(34);
  PutHalf(block, 0, 0.25f);
  block[2] = 0x80;
  block[33] = 0x7F;
  const std::vector<float> w = Dequantize(TensorType::kQ8_0, block);
  EXPECT_EQ(w[0], 0.25f * -128);
  EXPECT_EQ(w[31], 0.25f * 127);
}

TEST(DequantizeRow, Q4_K) {
  std::vector<uint8_t> block(144);
  PutHalf(block, 0, 0.5f);
  PutHalf(block, 2, 0.25f);
  uint8_t* scales = &block[4];
  // Group 2: scale 33, min 17, in the first 8 bytes. Group 6: scale 45 = 0b10'1101, min 52 =
  // 0b11'0100, split.
  scales[2] = 33 | 0b10 << 6;
  scales[6] = 17 | 0b11 << 6;
  scales[10] = 0b1101 | 0b0100 << 4;
  block[16 + 32] = 0x07;  // Element 64: group 2, the low nibbles of the second 32 bytes.
  block[16 + 96] = 0x09;  // Element 192: group 6.
  const std::vector<float> w = Dequantize(TensorType::kQ4_K, block);
  EXPECT_EQ(w[64], 0.5f * 33 * 7 - 0.25f * 17);
  EXPECT_EQ(w[192], 0.5f * 45 * 9 - 0.25f * 52);
  EXPECT_EQ(w[193], -0.25f * 52);
  EXPECT_EQ(w[0], 0.0f);
}

TEST(DequantizeRow, Q6_K) {
  std::vector<uint8_t> block(210);
  PutHalf(block, 208, 0.5f);
  for (int i = 0; i < 16; ++i) block[192 + i] = static_cast<uint8_t>(i - 8);
  block[64 + 32] = 0xA0;  // Second half, run 3 (elements 224..255): high nibble of byte 32 is 10.
  block[128 + 32] = 0b11 << 6;  // Its high pair.
  const std::vector<float> w = Dequantize(TensorType::kQ6_K, block);
  EXPECT_EQ(w[224], 0.5f * (14 - 8) * (10 + 48 - 32));
  EXPECT_EQ(w[0], 0.5f * -8 * -32);
  EXPECT_EQ(w[16], 0.5f * -7 * -32);
}

TEST(DequantizeRow, FloatTypes) {
  std::vector<uint8_t> f32(8), f16(4), bf16(4);
  const float values[] = {1.5f, -2.25f};
  std::memcpy(f32.data(), values, 8);
  for (int i = 0; i < 2; ++i) {
    PutHalf(f16, 2 * i, values[i]);
    const uint16_t b = FloatToBf16(values[i]);
    std::memcpy(&bf16[2 * i], &b, 2);
  }
  EXPECT_EQ(Dequantize(TensorType::kF32, f32), std::vector<float>({1.5f, -2.25f}));
  EXPECT_EQ(Dequantize(TensorType::kF16, f16), std::vector<float>({1.5f, -2.25f}));
  EXPECT_EQ(Dequantize(TensorType::kBf16, bf16), std::vector<float>({1.5f, -2.25f}));
}

TEST(DequantizeRow, TakesTheRowAskedFor) {
  for (TensorType type : kAllTypes) {
    const RandomTensor tensor(type, 3, 512, 1);
    const TensorView& view = tensor.view();
    std::vector<float> row(512), alone(512);
    DequantizeRow(view, 2, absl::MakeSpan(row));
    DequantizeRow({type, 1, 512, view.data + 2 * view.row_bytes()}, 0, absl::MakeSpan(alone));
    EXPECT_EQ(row, alone) << TensorTypeName(type);
  }
}

}  // namespace
}  // namespace baton::kernels
