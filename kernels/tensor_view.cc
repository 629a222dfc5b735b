#include "kernels/tensor_view.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace baton::kernels {
namespace {

struct TypeInfo {
  const char* name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

// Indexed by TensorType.
constexpr TypeInfo kTypes[] = {{"F32", 1, 4},      {"F16", 1, 2},     {"BF16", 1, 2},
                               {"Q4_0", 32, 18},   {"Q4_1", 32, 20},  {"Q8_0", 32, 34},
                               {"Q4_K", 256, 144}, {"Q6_K", 256, 210}};

uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float LoadHalf(const uint8_t* bytes) { return HalfToFloat(LoadU16(bytes)); }

void DequantizeQ4_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

void DequantizeQ4_1(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(block[4 + i] >> 4) + m;
  }
}

void DequantizeQ8_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Four pairs of 32: low nibbles of 32 bytes, then their high nibbles.
void DequantizeQ4_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float d_min = LoadHalf(block + 2);
  const uint8_t* quants = block + 16;
  for (uint32_t group = 0; group < 8; ++group) {
    const Q4KScale scale = UnpackQ4KScale(block + 4, group);
    const float s = d * scale.scale;
    const float m = d_min * scale.min;
    const uint32_t shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const uint32_t q = quants[group / 2 * 32 + i] >> shift & 15;
      out[group * 32 + i] = s * static_cast<float>(q) - m;
    }
  }
}

void DequantizeQ6_K(const uint8_t* block, float* out) {
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  const float d = LoadHalf(block + 208);
  for (uint32_t i = 0; i < 256; ++i) {
    out[i] = d * scales[i / 16] * static_cast<float>(Q6KQuant(block, i) - 32);
  }
}

template <typename DequantizeBlock>
void ForEachBlock(const uint8_t* row, TensorType type, absl::Span<float> out,
                  DequantizeBlock dequantize) {
  const uint32_t elements = BlockElements(type);
  const uint32_t bytes = BlockBytes(type);
  for (size_t i = 0; i < out.size(); i += elements, row += bytes) dequantize(row, out.data() + i);
}

}  // namespace

absl::string_view TensorTypeName(TensorType type) { return kTypes[static_cast<size_t>(type)].name; }
uint32_t BlockElements(TensorType type) { return kTypes[static_cast<size_t>(type)].block_elements; }
uint32_t BlockBytes(TensorType type) { return kTypes[static_cast<size_t>(type)].block_bytes; }

void DequantizeRow(const TensorView& view, uint64_t row, absl::Span<float> out) {
  CHECK_LT(row, view.rows);
  CHECK_EQ(out.size(), view.columns);
  const uint8_t* bytes = view.data + row * view.row_bytes();
  switch (view.type) {
    case TensorType::kF32:
      std::memcpy(out.data(), bytes, out.size() * sizeof(float));
      return;
    case TensorType::kF16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = LoadHalf(bytes + 2 * i);
      return;
    case TensorType::kBf16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = Bf16ToFloat(LoadU16(bytes + 2 * i));
      return;
    case TensorType::kQ4_0:
      return ForEachBlock(bytes, view.type, out, DequantizeQ4_0);
    case TensorType::kQ4_1:
      return ForEachBlock(bytes, view.type, out, DequantizeQ4_1);
    case TensorType::kQ8_0:
      return ForEachBlock(bytes, view.type, out, DequantizeQ8_0);
    case TensorType::kQ4_K:
      return ForEachBlock(bytes, view.type, out, DequantizeQ4_K);
    case TensorType::kQ6_K:
      return ForEachBlock(bytes, view.type, out, DequantizeQ6_K);
  }
}

Q4KScale UnpackQ4KScale(const uint8_t* scales, uint32_t group) {
  if (group < 4) {
    return {static_cast<uint8_t>(scales[group] & 63), static_cast<uint8_t>(scales[group + 4] & 63)};
  }
  const uint8_t low = scales[group + 4];
  return {static_cast<uint8_t>((low & 15) | (scales[group - 4] >> 6 << 4)),
          static_cast<uint8_t>((low >> 4) | (scales[group] >> 6 << 4))};
}

// Halves of 128; in each, four runs of 32 share 64 bytes of nibbles and 32 bytes of high pairs.
uint8_t Q6KQuant(const uint8_t* block, uint32_t element) {
  const uint32_t half = element / 128;
  const uint32_t run = element % 128 / 32;
  const uint32_t i = element % 32;
  const uint32_t low = block[half * 64 + run % 2 * 32 + i] >> (run / 2 * 4) & 15;
  const uint32_t high = block[128 + half * 32 + i] >> (run * 2) & 3;
  return static_cast<uint8_t>(low | high << 4);
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // Subnormal or zero.
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;   // NaN.
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // 65520 and more round to infinity.
  if (magnitude < 0x38800000) {                       // Below the least normal half, 2^-14.
    // Adding 0.5 aligns the unit of a subnormal half, 2^-24, with the last bit of the sum: the FPU
    // rounds to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - 0x3F000000);
  }
  const uint32_t rounded = magnitude + 0x0FFF + (magnitude >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

float Bf16ToFloat(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace baton::kernels
