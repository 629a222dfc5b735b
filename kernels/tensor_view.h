// A weight matrix as it stands in a model file: row-major, each row a whole number of quantisation
// blocks.
//
// Formats and their dequantisation are those of GGUF:
//
//   type   block  bytes  layout of a block
//   F32        1      4
//   F16        1      2
//   BF16       1      2
//   Q4_0      32     18  f16 d; 16 bytes, low nibbles first half, high second: w = d * (q - 8)
//   Q4_1      32     20  f16 d; f16 m; 16 bytes as Q4_0:                       w = d * q + m
//   Q8_0      32     34  f16 d; 32 int8:                                       w = d * q
//   Q4_K     256    144  f16 d; f16 dmin; 12 bytes of 6-bit scales and minima; 128 bytes of nibbles
//   Q6_K     256    210  128 bytes low nibbles; 64 bytes high pairs; 16 int8 scales; f16 d
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton::kernels {

enum class TensorType : uint8_t { kF32, kF16, kBf16, kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ6_K };

absl::string_view TensorTypeName(TensorType type);  // "Q4_1"
uint32_t BlockElements(TensorType type);            // 32
uint32_t BlockBytes(TensorType type);               // 20

// Borrowed bytes; the file's mapping outlives every view. data == nullptr: there is no such tensor.
struct TensorView {
  TensorType type = TensorType::kF32;
  uint64_t rows = 0;     // Output features; 1 for a vector.
  uint64_t columns = 0;  // Input features: a multiple of BlockElements(type).
  const uint8_t* data = nullptr;

  bool empty() const { return data == nullptr; }
  uint64_t row_bytes() const { return columns / BlockElements(type) * BlockBytes(type); }
  uint64_t bytes() const { return rows * row_bytes(); }
};

// Writes row `row` as f32, the same order of f32 operations as the table above.
// REQUIRES: row < view.rows, out.size() == view.columns.
void DequantizeRow(const TensorView& view, uint64_t row, absl::Span<float> out);

// One of the 8 groups of 32 of a Q4_K block. `scales`: the block's 12 bytes. REQUIRES: group < 8.
struct Q4KScale {
  uint8_t scale;  // 6 bits; the group's scale is d * scale.
  uint8_t min;    // 6 bits; the group's offset is -(dmin * min).
};
Q4KScale UnpackQ4KScale(const uint8_t* scales, uint32_t group);

// Element of a Q6_K block as stored, [0, 63]; its weight is d * scale * (q - 32).
// REQUIRES: element < 256.
uint8_t Q6KQuant(const uint8_t* block, uint32_t element);

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);  // Round to nearest even.
float Bf16ToFloat(uint16_t value);
uint16_t FloatToBf16(float value);  // Round to nearest even; NaN stays NaN.

}  // namespace baton::kernels
