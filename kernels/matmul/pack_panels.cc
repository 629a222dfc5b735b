#include <cstring>

#include "base/check.h"
#include "kernels/matmul/panels.h"
#include "kernels/matmul/row_packing.h"

namespace baton::kernels {
namespace {

uint64_t BytesPer256(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return 256 * kPairColumns * 4;
    case TensorType::kF16:
    case TensorType::kBf16:
      return 256 * kPairColumns * 2;
    case TensorType::kQ4_0:
      return 8 * sizeof(PairQ4_0);
    case TensorType::kQ4_1:
      return 8 * sizeof(PairQ4_1);
    case TensorType::kQ8_0:
      return 8 * sizeof(PairQ8_0);
    case TensorType::kQ4_K:
      return sizeof(PairQ4_K);
    case TensorType::kQ6_K:
      return sizeof(PairQ6_K);
  }
  return 0;
}

// Where column `lane` of `panel` goes.
struct Place {
  uint32_t panel;
  uint32_t lane;
};

void PutWord(uint16_t& to, const uint8_t* from) { std::memcpy(&to, from, sizeof(to)); }

// Element k (< 32) of a group.
void PutNibble(PairNibbles& q, Place at, uint32_t k, uint32_t value) {
  const uint32_t quad = k / 4;
  q[quad / 2][at.panel][at.lane * 4 + k % 4] |= value << (quad % 2 * 4);
}

// Q4_0 and Q4_1: 16 bytes, elements 0..15 in the low nibbles.
void PutFileNibbles(PairNibbles& q, Place at, const uint8_t* nibbles) {
  for (uint32_t i = 0; i < 16; ++i) {
    PutNibble(q, at, i, nibbles[i] & 15);
    PutNibble(q, at, i + 16, nibbles[i] >> 4);
  }
}

void PutBlock(PairQ4_0& to, Place at, const uint8_t* block) {
  PutWord(to.scale[at.panel][at.lane], block);
  PutFileNibbles(to.q, at, block + 2);
}

void PutBlock(PairQ4_1& to, Place at, const uint8_t* block) {
  PutWord(to.scale[at.panel][at.lane], block);
  PutWord(to.min[at.panel][at.lane], block + 2);
  PutFileNibbles(to.q, at, block + 4);
}

void PutBlock(PairQ8_0& to, Place at, const uint8_t* block) {
  PutWord(to.scale[at.panel][at.lane], block);
  for (uint32_t k = 0; k < 32; ++k) {
    to.q[k / 4][at.panel][at.lane * 4 + k % 4] = block[2 + k] ^ 0x80;
  }
}

void PutBlock(PairQ4_K& to, Place at, const uint8_t* block) {
  PutWord(to.d[at.panel][at.lane], block);
  PutWord(to.d_min[at.panel][at.lane], block + 2);
  for (uint32_t g = 0; g < 8; ++g) {
    const Q4KScale scale = UnpackQ4KScale(block + 4, g);
    to.groups[g].scale[at.panel][at.lane] = scale.scale;
    to.groups[g].min[at.panel][at.lane] = scale.min;
    for (uint32_t k = 0; k < 32; ++k) {
      PutNibble(to.groups[g].q, at, k, block[16 + g / 2 * 32 + k] >> (g % 2 * 4) & 15);
    }
  }
}

void PutBlock(PairQ6_K& to, Place at, const uint8_t* block) {
  PutWord(to.d[at.panel][at.lane], block + 208);
  for (uint32_t element = 0; element < 256; ++element) {
    PairQ6_K::Group& group = to.groups[element / 32];
    const uint32_t k = element % 32;
    const uint32_t quad = k / 4;
    const uint32_t q = Q6KQuant(block, element);
    PutNibble(group.low, at, k, q & 15);
    group.high[quad / 4][at.panel][at.lane * 4 + k % 4] |= q >> 4 << (quad % 4 * 2);
  }
  for (uint32_t half = 0; half < 16; ++half) {
    to.groups[half / 2].scale[half % 2][at.panel][at.lane] = block[192 + half];
  }
}

template <typename Block>
void PutRow(TensorType type, const uint8_t* row, uint32_t columns, Place at, uint8_t* pair) {
  auto* blocks = reinterpret_cast<Block*>(pair);
  for (uint32_t i = 0; i < columns / BlockElements(type); ++i) {
    PutBlock(blocks[i], at, row + i * BlockBytes(type));
  }
}

template <typename Element>
void PutFloats(const uint8_t* row, uint32_t columns, Place at, uint8_t* pair) {
  for (uint32_t k = 0; k < columns; ++k) {
    const uint32_t index = k * kPairColumns + at.panel * kPanelColumns + at.lane;
    std::memcpy(pair + index * sizeof(Element), row + k * sizeof(Element), sizeof(Element));
  }
}

void PutRow(const TensorView& tensor, uint64_t row, Place at, uint8_t* pair) {
  const uint8_t* bytes = tensor.data + row * tensor.row_bytes();
  const auto columns = static_cast<uint32_t>(tensor.columns);
  switch (tensor.type) {
    case TensorType::kF32:
      return PutFloats<uint32_t>(bytes, columns, at, pair);
    case TensorType::kF16:
    case TensorType::kBf16:
      return PutFloats<uint16_t>(bytes, columns, at, pair);
    case TensorType::kQ4_0:
      return PutRow<PairQ4_0>(tensor.type, bytes, columns, at, pair);
    case TensorType::kQ4_1:
      return PutRow<PairQ4_1>(tensor.type, bytes, columns, at, pair);
    case TensorType::kQ8_0:
      return PutRow<PairQ8_0>(tensor.type, bytes, columns, at, pair);
    case TensorType::kQ4_K:
      return PutRow<PairQ4_K>(tensor.type, bytes, columns, at, pair);
    case TensorType::kQ6_K:
      return PutRow<PairQ6_K>(tensor.type, bytes, columns, at, pair);
  }
}

}  // namespace

uint64_t PairBytesOf(TensorType type, uint64_t columns) {
  return BytesPer256(type) * columns / 256;
}

uint32_t PairCountOf(RowOrder order, uint32_t rows) {
  // Gate and up fill a panel each: 32 weight rows are one pair there too, but the last pair pads
  // both.
  const uint32_t results = order == RowOrder::kGateUp ? rows / 2 : rows;
  const uint32_t pair_results = order == RowOrder::kGateUp ? kPanelColumns : kPairColumns;
  return (results + pair_results - 1) / pair_results;
}

uint64_t PanelBytes(const PanelShape& shape) {
  return PairBytesOf(shape.type, shape.columns) * PairCountOf(shape.order, shape.rows);
}

void PackPanels(absl::Span<const TensorView> tensors, RowOrder order, absl::Span<uint8_t> out) {
  const uint64_t pair_bytes = PairBytesOf(tensors[0].type, tensors[0].columns);
  uint64_t first_row = 0;
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    for (uint64_t row = 0; row < tensors[t].rows; ++row) {
      uint64_t pair;
      Place at;
      if (order == RowOrder::kGateUp) {
        pair = row / kPanelColumns;
        at = {.panel = t, .lane = static_cast<uint32_t>(row % kPanelColumns)};
      } else {
        pair = (first_row + row) / kPairColumns;
        const auto column = static_cast<uint32_t>((first_row + row) % kPairColumns);
        at = {.panel = column / kPanelColumns, .lane = column % kPanelColumns};
      }
      CHECK_LE((pair + 1) * pair_bytes, out.size());
      PutRow(tensors[t], row, at, out.data() + pair * pair_bytes);
    }
    first_row += tensors[t].rows;
  }
}

}  // namespace baton::kernels
