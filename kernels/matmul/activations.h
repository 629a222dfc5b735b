// Rows of activations in the form that matmul reads. Filled by the ops quantize and rms_norm, in
// one of two formats:
//
//   kInt8  for quantised weights. Each 32 elements of a row have an exact scale of their own:
//              scale = max|x| / 127,  q = round_to_even(x * (127 / max|x|)) in [-127, 127]
//          (max|x| < 2^-100 counts as 0: scale 0, q 0).
//   kF32   for F32, F16 and BF16 weights: the values as they are.
//
// Rows lie in blocks of kRowBlock, interleaved as the tile of matmul walks: it reads one stream,
// front to back. Owned by the model, reused every step. Thread-compatible; different blocks may be
// written by different threads.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "kernels/buffer.h"

namespace baton::kernels {

enum class ActivationFormat : uint8_t { kInt8 = 1, kF32 = 2 };

// Rows of a tile: 6 rows x 32 columns keep 12 integer and 12 float accumulators in 32 registers.
// Intel cores need 10 chains in flight (two vpdpbusd a cycle, 5 cycles each): 6 rows are 6 % faster
// there than 4.
inline constexpr uint32_t kRowBlock = 6;
inline constexpr uint32_t kGroupElements = 32;

// 32 elements of kRowBlock rows, format kInt8.
struct ActivationGroup {
  int8_t q[kGroupElements / 4][kRowBlock][4];
  float scale[kRowBlock];
  // scale * sum(q): multiplies the weights' minima.
  float sum[kRowBlock];
  // -128 * sum(q): undoes the offset of weights that are stored as w + 128.
  int32_t start[kRowBlock];
  // The same for elements 0..15 and 16..31: for scales per 16.
  int32_t half_start[2][kRowBlock];
};

class Activations {
 public:
  Activations() = default;
  // Room for rows_max rows of columns_max elements in either format.
  Activations(uint32_t rows_max, uint32_t columns_max);

  // Says what the rows to come are. REQUIRES: within the constructor's bounds; for kInt8, columns
  // is a multiple of 32.
  void Reset(ActivationFormat format, uint32_t rows, uint32_t columns);

  ActivationFormat format() const { return format_; }
  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }
  // Of the memory that Groups(0) and Floats(0) begin.
  size_t bytes() const { return buffer_.size(); }
  uint32_t block_count() const { return (rows_ + kRowBlock - 1) / kRowBlock; }

  // [columns / 32] groups of rows [block * kRowBlock, + kRowBlock). Rows past rows() hold anything.
  ActivationGroup* Groups(uint32_t block) const {
    return buffer_.as<ActivationGroup>() + size_t{block} * (columns_ / kGroupElements);
  }
  // [columns][kRowBlock], format kF32.
  float* Floats(uint32_t block) const {
    return buffer_.as<float>() + size_t{block} * columns_ * kRowBlock;
  }

 private:
  Buffer buffer_;
  uint64_t rows_max_ = 0;
  uint64_t columns_max_ = 0;
  ActivationFormat format_ = ActivationFormat::kInt8;
  uint32_t rows_ = 0;
  uint32_t columns_ = 0;
};

}  // namespace baton::kernels
