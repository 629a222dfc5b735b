// Rows of f32 into Activations, in the format that the next matmul wants (see matmul/activations.h
// for the formula).
//
//   x   [rows, columns] f32, rows x_stride elements apart
//   y   Activations, Reset() by the op to (format, rows, columns)
//
// Levels agree bit for bit on finite x.
#pragma once

#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/matmul/activations.h"

namespace baton::kernels {

struct QuantizeArgs {
  const float* x = nullptr;
  uint64_t x_stride = 0;  // >= columns.
  uint32_t rows = 0;      // 0 is legal and writes nothing.
  uint32_t columns = 0;   // kInt8: a multiple of 32.
  ActivationFormat format = ActivationFormat::kInt8;
  Activations* y = nullptr;
};

using QuantizeFn = void (*)(const QuantizeArgs& args, KernelContext& context);

void QuantizeReference(const QuantizeArgs& args, KernelContext& context);
void QuantizeAvx512(const QuantizeArgs& args, KernelContext& context);

// CHECKs the contract above; every backend calls it first.
void CheckArgs(const QuantizeArgs& args);

// The reference for one row: row `row` of y from x [y.columns()].
void QuantizeRowReference(const float* x, uint32_t row, Activations& y);

}  // namespace baton::kernels
