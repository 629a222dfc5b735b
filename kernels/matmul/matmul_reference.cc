#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/row_packing.h"

namespace baton::kernels {
namespace {

// A quantised weight row as the formula in matmul.h sees it.
struct IntegerRow {
  uint32_t group_elements = 32;  // Elements per scale: 32 or 16.
  std::vector<int16_t> q;        // [K]
  std::vector<float> scale;      // [K / group_elements]
  std::vector<float> min;        // [K / 32], empty if the type has none.
};

float LoadHalf(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return HalfToFloat(half);
}

int Nibble(const uint8_t* nibbles, uint32_t i) {
  return i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
}

void AppendQ4_K(const uint8_t* block, IntegerRow& row) {
  const float d = LoadHalf(block);
  const float d_min = LoadHalf(block + 2);
  for (uint32_t group = 0; group < 8; ++group) {
    const Q4KScale s = UnpackQ4KScale(block + 4, group);
    row.scale.push_back(d * s.scale);
    row.min.push_back(-(d_min * s.min));
    for (uint32_t i = 0; i < 32; ++i) {
      row.q.push_back(block[16 + group / 2 * 32 + i] >> (group % 2 * 4) & 15);
    }
  }
}

void AppendQ6_K(const uint8_t* block, IntegerRow& row) {
  const float d = LoadHalf(block + 208);
  for (uint32_t group = 0; group < 16; ++group) {
    row.scale.push_back(d * static_cast<int8_t>(block[192 + group]));
  }
  for (uint32_t i = 0; i < 256; ++i) row.q.push_back(Q6KQuant(block, i) - 32);
}

void AppendBlock(TensorType type, const uint8_t* block, IntegerRow& row) {
  switch (type) {
    case TensorType::kQ4_0:
      row.scale.push_back(LoadHalf(block));
      for (uint32_t i = 0; i < 32; ++i) row.q.push_back(Nibble(block + 2, i) - 8);
      return;
    case TensorType::kQ4_1:
      row.scale.push_back(LoadHalf(block));
      row.min.push_back(LoadHalf(block + 2));
      for (uint32_t i = 0; i < 32; ++i) row.q.push_back(Nibble(block + 4, i));
      return;
    case TensorType::kQ8_0:
      row.scale.push_back(LoadHalf(block));
      for (uint32_t i = 0; i < 32; ++i) row.q.push_back(static_cast<int8_t>(block[2 + i]));
      return;
    case TensorType::kQ4_K:
      return AppendQ4_K(block, row);
    case TensorType::kQ6_K:
      return AppendQ6_K(block, row);
    default:
      CHECK(false) << TensorTypeName(type) << " is not quantised";
  }
}

IntegerRow ReadIntegerRow(TensorType type, const uint8_t* bytes, uint32_t columns) {
  IntegerRow row;
  row.group_elements = type == TensorType::kQ6_K ? 16 : 32;
  for (uint32_t k = 0; k < columns; k += BlockElements(type), bytes += BlockBytes(type)) {
    AppendBlock(type, bytes, row);
  }
  return row;
}

float Dot(const IntegerRow& w, const ActivationGroup* groups, uint32_t lane) {
  float y = 0.0f;
  for (uint32_t g = 0; g < w.scale.size(); ++g) {
    const uint32_t first = g * w.group_elements;
    const ActivationGroup& x = groups[first / kGroupElements];
    int32_t sum = 0;
    for (uint32_t k = first; k < first + w.group_elements; ++k) {
      const uint32_t i = k % kGroupElements;
      sum += w.q[k] * x.q[i / 4][lane][i % 4];
    }
    y = std::fma(static_cast<float>(sum), w.scale[g] * x.scale[lane], y);
    if (!w.min.empty()) y = std::fma(w.min[g], x.sum[lane], y);
  }
  return y;
}

float Dot(absl::Span<const float> w, const float* x, uint32_t lane) {
  double y = 0.0;
  for (size_t k = 0; k < w.size(); ++k) y += double{w[k]} * x[k * kRowBlock + lane];
  return static_cast<float>(y);
}

float Silu(float x) { return x / (1.0f + std::exp(-x)); }

// Results of weight row `row` for all rows of x: y [M].
void WeightRow(const MatmulArgs& args, const PackedMatrix::Part& part, uint32_t row,
               absl::Span<float> y) {
  const Activations& x = *args.x;
  const uint8_t* bytes = part.data + row * RowBytes(part.type, x.columns());
  const float bias = args.bias != nullptr ? args.bias[part.first_row + row] : 0.0f;
  if (x.format() == ActivationFormat::kInt8) {
    const IntegerRow w = ReadIntegerRow(part.type, bytes, x.columns());
    for (uint32_t m = 0; m < x.rows(); ++m) {
      y[m] = Dot(w, x.Groups(m / kRowBlock), m % kRowBlock) + bias;
    }
  } else {
    std::vector<float> w(x.columns());
    DequantizeRow({part.type, 1, x.columns(), bytes}, 0, absl::MakeSpan(w));
    for (uint32_t m = 0; m < x.rows(); ++m) {
      y[m] = Dot(w, x.Floats(m / kRowBlock), m % kRowBlock) + bias;
    }
  }
}

void OutputColumn(const MatmulArgs& args, const PackedMatrix::Part& part, uint32_t row) {
  std::vector<float> y(args.x->rows());
  WeightRow(args, part, row, absl::MakeSpan(y));
  std::vector<float> up(args.epilogue == Epilogue::kSwiGlu ? y.size() : 0);
  if (!up.empty()) WeightRow(args, part, part.rows / 2 + row, absl::MakeSpan(up));
  for (size_t m = 0; m < y.size(); ++m) {
    float& out = args.out[m * args.out_stride + part.first_row + row];
    switch (args.epilogue) {
      case Epilogue::kStore:
        out = y[m];
        break;
      case Epilogue::kAdd:
        out += y[m];
        break;
      case Epilogue::kSwiGlu:
        out = Silu(y[m]) * up[m];
        break;
    }
  }
}

}  // namespace

void CheckArgs(const MatmulArgs& args, PackedLayout layout) {
  CHECK(args.x != nullptr && args.weights != nullptr && !args.weights->empty());
  CHECK(args.weights->layout() == layout) << PackedLayoutName(args.weights->layout());
  CHECK(args.x->format() == args.weights->activation_format());
  CHECK_EQ(args.x->columns(), args.weights->columns());
  CHECK(args.x->rows() == 0 || args.out != nullptr);
  CHECK_LE(args.weights->out_columns(), args.out_stride);
  CHECK((args.epilogue == Epilogue::kSwiGlu) == (args.weights->order() == RowOrder::kGateUp));
}

void MatmulReference(const MatmulArgs& args, KernelContext& context) {
  CheckArgs(args, PackedLayout::kRows);
  if (args.x->rows() == 0) return;
  constexpr uint32_t kTileColumns = 16;
  for (const PackedMatrix::Part& part : args.weights->parts()) {
    const uint32_t columns = args.epilogue == Epilogue::kSwiGlu ? part.rows / 2 : part.rows;
    context.ForEachTile((columns + kTileColumns - 1) / kTileColumns, [&](uint32_t tile, uint32_t) {
      const uint32_t end = std::min(columns, (tile + 1) * kTileColumns);
      for (uint32_t row = tile * kTileColumns; row < end; ++row) OutputColumn(args, part, row);
    });
  }
}

}  // namespace baton::kernels
