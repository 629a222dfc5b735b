// A weight matrix in the form one CPU level reads: one flat run of bytes, made once and kept in the
// packed file.
//
//   MatrixSource source = {.tensors = {q, k, v}};                 // stacked by rows
//   Buffer bytes(PackedBytes(source, layout));
//   Pack(source, layout, {bytes.data(), bytes.size()});
//   ASSIGN_OR_RETURN(PackedMatrix qkv, PackedMatrix::Open({bytes.data(), bytes.size()}));
//
// The bytes may be written to a file and read back on a machine of the same byte order
// (little-endian); whether a file fits is decided by its key (model digest, layout,
// kPackingRevision), and Open() checks that the shapes agree with the size.
//
// Tensors of different types may be stacked (Q4_K_M files mix Q4_K and Q6_K) if they want the same
// ActivationFormat.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cpu_level.h"
#include "kernels/matmul/activations.h"
#include "kernels/tensor_view.h"

namespace baton::kernels {

// Part of the numerics class and of the packed file's name: raise it when the bytes or their
// meaning change.
inline constexpr uint32_t kPackingRevision = 1;

enum class PackedLayout : uint32_t {
  kRows = 1,    // The file's rows as they are: reference.
  kPanels = 2,  // Pairs of 16-column panels in the order in which the AVX-512 tile reads them.
};
PackedLayout PackedLayoutOf(CpuLevel level);
absl::string_view PackedLayoutName(PackedLayout layout);  // "rows", "panels"

enum class RowOrder : uint32_t {
  kStacked = 1,  // Tensor after tensor.
  kGateUp = 2,   // Two tensors of one shape and type, gate and up, as Epilogue::kSwiGlu wants them.
};

struct MatrixSource {
  std::vector<TensorView> tensors;  // [1, kPartsMax], of equal columns.
  RowOrder order = RowOrder::kStacked;
};

// INVALID_ARGUMENT, naming the tensor's index, its type or shape and what is legal. The rest here
// REQUIREs that it is OK.
absl::Status Validate(const MatrixSource& source);
ActivationFormat FormatFor(TensorType type);

// A multiple of 64.
uint64_t PackedBytes(const MatrixSource& source, PackedLayout layout);
// `out`: PackedBytes() bytes, 64-byte aligned.
void Pack(const MatrixSource& source, PackedLayout layout, absl::Span<uint8_t> out);

class PackedMatrix {
 public:
  static constexpr uint32_t kPartsMax = 4;

  // Neighbouring tensors of one type.
  struct Part {
    TensorType type = TensorType::kF32;
    uint32_t rows = 0;       // Output features; kGateUp: of gate and up together.
    uint32_t first_row = 0;  // Where its results begin in the row of results.
    const uint8_t* data = nullptr;
  };

  PackedMatrix() = default;
  // Borrows `bytes`, which is 64-byte aligned and outlives it. INVALID_ARGUMENT if they are not
  // what Pack() wrote.
  static absl::StatusOr<PackedMatrix> Open(absl::Span<const uint8_t> bytes);

  bool empty() const { return part_count_ == 0; }
  PackedLayout layout() const { return layout_; }
  RowOrder order() const { return order_; }
  ActivationFormat activation_format() const { return FormatFor(parts_[0].type); }
  uint32_t rows() const { return rows_; }        // Of all tensors.
  uint32_t columns() const { return columns_; }  // Elements of an activation row.
  // Elements of a row of results: rows(), or half of it for kGateUp.
  uint32_t out_columns() const { return order_ == RowOrder::kGateUp ? rows_ / 2 : rows_; }
  absl::Span<const Part> parts() const { return {parts_, part_count_}; }

 private:
  PackedLayout layout_ = PackedLayout::kRows;
  RowOrder order_ = RowOrder::kStacked;
  uint32_t rows_ = 0;
  uint32_t columns_ = 0;
  uint32_t part_count_ = 0;
  Part parts_[kPartsMax];
};

}  // namespace baton::kernels
