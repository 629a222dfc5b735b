#include "kernels/matmul/packed_matrix.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/matmul/row_packing.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kMagic = 0x4D504E42;  // "BNPM"
constexpr uint64_t kRowsMax = uint64_t{1} << 24;
constexpr uint64_t kColumnsMax = uint64_t{1} << 20;

struct PartHeader {
  uint32_t type;
  uint32_t rows;
  uint32_t first_row;
  uint32_t reserved;
  uint64_t offset;  // From the first byte of the header; a multiple of 64.
  uint64_t bytes;
};

struct Header {
  uint32_t magic;
  uint32_t revision;
  uint32_t layout;
  uint32_t order;
  uint32_t rows;
  uint32_t columns;
  uint32_t part_count;
  uint32_t reserved;
  PartHeader parts[PackedMatrix::kPartsMax];
  uint32_t padding[8];
};
static_assert(sizeof(Header) % 64 == 0);

uint64_t RoundUpTo64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint64_t PartBytes(PackedLayout layout, RowOrder order, TensorType type, uint32_t rows,
                   uint32_t columns) {
  switch (layout) {
    case PackedLayout::kRows:
      return RowBytes(type, columns) * rows;
    case PackedLayout::kPanels:
      return PanelBytes({.type = type, .order = order, .rows = rows, .columns = columns});
  }
  return 0;
}

// Where everything goes; the same for PackedBytes(), Pack() and Open().
Header Plan(const MatrixSource& source, PackedLayout layout) {
  Header header = {};
  header.magic = kMagic;
  header.revision = kPackingRevision;
  header.layout = static_cast<uint32_t>(layout);
  header.order = static_cast<uint32_t>(source.order);
  header.columns = static_cast<uint32_t>(source.tensors[0].columns);
  for (const TensorView& tensor : source.tensors) {
    const auto type = static_cast<uint32_t>(tensor.type);
    const bool same = header.part_count > 0 && header.parts[header.part_count - 1].type == type;
    if (!same) header.parts[header.part_count++] = {.type = type, .first_row = header.rows};
    header.parts[header.part_count - 1].rows += tensor.rows;
    header.rows += tensor.rows;
  }
  uint64_t offset = sizeof(Header);
  for (uint32_t i = 0; i < header.part_count; ++i) {
    PartHeader& part = header.parts[i];
    part.offset = offset;
    part.bytes = PartBytes(layout, source.order, static_cast<TensorType>(part.type), part.rows,
                           header.columns);
    offset += RoundUpTo64(part.bytes);
  }
  return header;
}

uint64_t TotalBytes(const Header& header) {
  const PartHeader& last = header.parts[header.part_count - 1];
  return last.offset + RoundUpTo64(last.bytes);
}

absl::Status PartError(uint32_t part, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("packed matrix: part ", part, ": ", what));
}

absl::Status CheckPart(const Header& header, uint32_t index, uint64_t total_bytes) {
  const PartHeader& part = header.parts[index];
  if (part.type > static_cast<uint32_t>(TensorType::kQ6_K)) {
    return PartError(index, "unknown tensor type");
  }
  const auto type = static_cast<TensorType>(part.type);
  if (header.columns % BlockElements(type) != 0) {
    return PartError(index, "columns do not fit the type");
  }
  if (FormatFor(type) != FormatFor(static_cast<TensorType>(header.parts[0].type))) {
    return PartError(index, "types of different activation formats");
  }
  const uint32_t first_row =
      index == 0 ? 0 : header.parts[index - 1].first_row + header.parts[index - 1].rows;
  if (part.rows == 0 || part.first_row != first_row || part.rows > header.rows - first_row) {
    return PartError(index, "rows do not add up");
  }
  const uint64_t bytes =
      PartBytes(static_cast<PackedLayout>(header.layout), static_cast<RowOrder>(header.order), type,
                part.rows, header.columns);
  if (part.offset % 64 != 0 || part.offset < sizeof(Header) || part.offset > total_bytes ||
      part.bytes != bytes || bytes > total_bytes - part.offset) {
    return PartError(index, "bytes do not fit the shape");
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(const Header& header, uint64_t total_bytes) {
  if (header.magic != kMagic || header.revision != kPackingRevision) {
    return absl::InvalidArgumentError("packed matrix: wrong magic or revision");
  }
  if (header.layout != static_cast<uint32_t>(PackedLayout::kRows) &&
      header.layout != static_cast<uint32_t>(PackedLayout::kPanels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("packed matrix: layout ", header.layout, " is unknown"));
  }
  const bool gate_up = header.order == static_cast<uint32_t>(RowOrder::kGateUp);
  if (!gate_up && header.order != static_cast<uint32_t>(RowOrder::kStacked)) {
    return absl::InvalidArgumentError(
        absl::StrCat("packed matrix: order ", header.order, " is unknown"));
  }
  if (header.rows == 0 || header.rows > kRowsMax || header.columns == 0 ||
      header.columns > kColumnsMax || header.part_count == 0 ||
      header.part_count > PackedMatrix::kPartsMax) {
    return absl::InvalidArgumentError("packed matrix: shape out of range");
  }
  if (gate_up && (header.part_count != 1 || header.rows % 2 != 0)) {
    return absl::InvalidArgumentError("packed matrix: gate and up do not pair");
  }
  for (uint32_t i = 0; i < header.part_count; ++i) {
    if (absl::Status s = CheckPart(header, i, total_bytes); !s.ok()) return s;
  }
  const PartHeader& last = header.parts[header.part_count - 1];
  if (last.first_row + last.rows != header.rows) {
    return absl::InvalidArgumentError("packed matrix: rows do not add up");
  }
  return absl::OkStatus();
}

absl::Status CheckTensor(const MatrixSource& source, size_t index) {
  const TensorView& tensor = source.tensors[index];
  const TensorView& first = source.tensors[0];
  const auto error = [&](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", index, " of a matrix: ", what...));
  };
  if (tensor.empty()) return error("is absent");
  if (tensor.rows == 0 || tensor.rows > kRowsMax) {
    return error(tensor.rows, " rows, must be in [1, ", kRowsMax, "]");
  }
  if (tensor.columns == 0 || tensor.columns > kColumnsMax ||
      tensor.columns % BlockElements(tensor.type) != 0) {
    return error(tensor.columns, " columns, must be a multiple of ", BlockElements(tensor.type),
                 " in [1, ", kColumnsMax, "]");
  }
  if (tensor.columns != first.columns) {
    return error(tensor.columns, " columns, the first has ", first.columns);
  }
  if (FormatFor(tensor.type) != FormatFor(first.type)) {
    return error("type ", TensorTypeName(tensor.type), " cannot be stacked on ",
                 TensorTypeName(first.type));
  }
  if (source.order == RowOrder::kGateUp &&
      (tensor.type != first.type || tensor.rows != first.rows)) {
    return error("gate and up must have one type and shape, got ", TensorTypeName(first.type),
                 " x ", first.rows, " and ", TensorTypeName(tensor.type), " x ", tensor.rows);
  }
  return absl::OkStatus();
}

}  // namespace

PackedLayout PackedLayoutOf(CpuLevel level) {
  switch (level) {
    case CpuLevel::kReference:
    case CpuLevel::kAvx2:
      return PackedLayout::kRows;
    case CpuLevel::kAvx512NoBf16:
    case CpuLevel::kAvx512:
      return PackedLayout::kPanels;
  }
  return PackedLayout::kRows;
}

absl::string_view PackedLayoutName(PackedLayout layout) {
  return layout == PackedLayout::kRows ? "rows" : "panels";
}

ActivationFormat FormatFor(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBf16:
      return ActivationFormat::kF32;
    default:
      return ActivationFormat::kInt8;
  }
}

absl::Status Validate(const MatrixSource& source) {
  if (source.tensors.empty() || source.tensors.size() > PackedMatrix::kPartsMax) {
    return absl::InvalidArgumentError(absl::StrCat("a matrix of ", source.tensors.size(),
                                                   " tensors, must be in [1, ",
                                                   PackedMatrix::kPartsMax, "]"));
  }
  if (source.order == RowOrder::kGateUp && source.tensors.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("gate and up are 2 tensors, got ", source.tensors.size()));
  }
  for (size_t i = 0; i < source.tensors.size(); ++i) {
    if (absl::Status s = CheckTensor(source, i); !s.ok()) return s;
  }
  return absl::OkStatus();
}

uint64_t PackedBytes(const MatrixSource& source, PackedLayout layout) {
  CHECK_OK(Validate(source));
  return TotalBytes(Plan(source, layout));
}

void Pack(const MatrixSource& source, PackedLayout layout, absl::Span<uint8_t> out) {
  CHECK_OK(Validate(source));
  const Header header = Plan(source, layout);
  CHECK_EQ(out.size(), TotalBytes(header));
  std::memset(out.data(), 0, out.size());
  std::memcpy(out.data(), &header, sizeof(header));
  size_t next_tensor = 0;
  for (uint32_t i = 0; i < header.part_count; ++i) {
    const PartHeader& part = header.parts[i];
    std::vector<TensorView> tensors;
    for (uint64_t rows = 0; rows < part.rows; rows += tensors.back().rows) {
      tensors.push_back(source.tensors[next_tensor++]);
    }
    const absl::Span<uint8_t> bytes = out.subspan(part.offset, part.bytes);
    if (layout == PackedLayout::kRows) {
      PackRows(tensors, bytes);
    } else {
      PackPanels(tensors, source.order, bytes);
    }
  }
}

absl::StatusOr<PackedMatrix> PackedMatrix::Open(absl::Span<const uint8_t> bytes) {
  CHECK(reinterpret_cast<uintptr_t>(bytes.data()) % 64 == 0);
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::InvalidArgumentError("packed matrix: too short for its header");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (absl::Status s = CheckHeader(header, bytes.size()); !s.ok()) return s;
  PackedMatrix matrix;
  matrix.layout_ = static_cast<PackedLayout>(header.layout);
  matrix.order_ = static_cast<RowOrder>(header.order);
  matrix.rows_ = header.rows;
  matrix.columns_ = header.columns;
  matrix.part_count_ = header.part_count;
  for (uint32_t i = 0; i < header.part_count; ++i) {
    const PartHeader& part = header.parts[i];
    matrix.parts_[i] = {static_cast<TensorType>(part.type), part.rows, part.first_row,
                        bytes.data() + part.offset};
  }
  return matrix;
}

}  // namespace baton::kernels
