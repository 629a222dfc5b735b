// How the rows of a part are laid out in bytes, one group of functions per PackedLayout. For
// packed_matrix.cc and the matmuls that read them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/matmul/packed_matrix.h"
#include "kernels/tensor_view.h"

namespace baton::kernels {

struct PanelShape {
  TensorType type;
  RowOrder order;
  uint32_t rows;
  uint32_t columns;
};

// Layout kRows: the file's rows, tensor after tensor.
uint64_t RowBytes(TensorType type, uint64_t columns);
void PackRows(absl::Span<const TensorView> tensors, absl::Span<uint8_t> out);

// Layout kPanels: see matmul/panels.h. `out` is zeroed.
uint64_t PairBytesOf(TensorType type, uint64_t columns);
uint32_t PairCountOf(RowOrder order, uint32_t rows);
uint64_t PanelBytes(const PanelShape& shape);
void PackPanels(absl::Span<const TensorView> tensors, RowOrder order, absl::Span<uint8_t> out);

}  // namespace baton::kernels
