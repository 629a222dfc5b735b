#include "kernels/matmul/activations.h"

#include <algorithm>

namespace baton::kernels {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Activations::Activations(uint32_t rows_max, uint32_t columns_max)
    : rows_max_(RoundUp(rows_max, kRowBlock)), columns_max_(RoundUp(columns_max, kGroupElements)) {
  const uint64_t int8_bytes =
      rows_max_ / kRowBlock * (columns_max_ / kGroupElements) * sizeof(ActivationGroup);
  const uint64_t f32_bytes = rows_max_ * columns_max_ * sizeof(float);
  buffer_ = Buffer(std::max(int8_bytes, f32_bytes));
}

void Activations::Reset(ActivationFormat format, uint32_t rows, uint32_t columns) {
  CHECK_LE(rows, rows_max_);
  CHECK_LE(columns, columns_max_);
  CHECK(format == ActivationFormat::kF32 || columns % kGroupElements == 0) << "columns " << columns;
  format_ = format;
  rows_ = rows;
  columns_ = columns;
}

}  // namespace baton::kernels
