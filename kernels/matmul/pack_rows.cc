#include <cstring>

#include "kernels/matmul/row_packing.h"

namespace baton::kernels {

uint64_t RowBytes(TensorType type, uint64_t columns) {
  return columns / BlockElements(type) * BlockBytes(type);
}

void PackRows(absl::Span<const TensorView> tensors, absl::Span<uint8_t> out) {
  uint8_t* to = out.data();
  for (const TensorView& tensor : tensors) {
    std::memcpy(to, tensor.data, tensor.bytes());
    to += tensor.bytes();
  }
}

}  // namespace baton::kernels
