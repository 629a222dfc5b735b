// Rows of the token table, dequantised: out[t] = table[tokens[t]].
//
//   table   [vocabulary, hidden], any type, as it stands in the file
//   tokens  [rows] token ids, each < table->rows
//   out     [rows, hidden] f32, dense
//
// One portable implementation serves all levels: it reads a few KB a step, and the same bits come
// out everywhere.
#pragma once

#include <cstdint>

#include "kernels/kernel_context.h"
#include "kernels/tensor_view.h"

namespace baton::kernels {

struct EmbedArgs {
  const TensorView* table = nullptr;
  const uint32_t* tokens = nullptr;
  uint32_t rows = 0;  // 0 is legal and writes nothing.
  float* out = nullptr;
};

using EmbedFn = void (*)(const EmbedArgs& args, KernelContext& context);

void Embed(const EmbedArgs& args, KernelContext& context);

}  // namespace baton::kernels
