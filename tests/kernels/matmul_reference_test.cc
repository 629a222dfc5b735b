// The reference against plain f64 arithmetic on dequantised weights: the outer anchor of every
// level's conformance.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/op_table.h"
#include "tests/kernels/random_tensor.h"

namespace baton::kernels {
namespace {

// What quantisation made of row `row`.
std::vector<double> Values(const Activations& x, uint32_t row) {
  std::vector<double> values(x.columns());
  const uint32_t lane = row % kRowBlock;
  for (uint32_t k = 0; k < x.columns(); ++k) {
    if (x.format() == ActivationFormat::kF32) {
      values[k] = x.Floats(row / kRowBlock)[k * kRowBlock + lane];
    } else {
      const ActivationGroup& group = x.Groups(row / kRowBlock)[k / 32];
      values[k] = double{group.scale[lane]} * group.q[k % 32 / 4][lane][k % 4];
    }
  }
  return values;
}

class MatmulReferenceTest : public testing::TestWithParam<TensorType> {};

TEST_P(MatmulReferenceTest, IsTheProductOfDequantisedWeights) {
  constexpr uint32_t kRows = 6, kN = 21, kK = 512;
  const RandomTensor w(GetParam(), kN, kK, 1);
  KernelContext context(2);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kK), bias(kN), out(kRows * kN, 1.0f);
  for (float& v : x) v = normal(random);
  for (float& v : bias) v = normal(random);

  const MatrixSource source = {.tensors = {w.view()}};
  Buffer bytes(PackedBytes(source, PackedLayout::kRows));
  Pack(source, PackedLayout::kRows, {bytes.data(), bytes.size()});
  const auto weights = PackedMatrix::Open({bytes.data(), bytes.size()});
  ASSERT_TRUE(weights.ok()) << weights.status();
  Activations y(kRows, kK);
  QuantizeReference({.x = x.data(),
                     .x_stride = kK,
                     .rows = kRows,
                     .columns = kK,
                     .format = weights->activation_format(),
                     .y = &y},
                    context);
  MatmulReference({.x = &y,
                   .weights = &*weights,
                   .bias = bias.data(),
                   .epilogue = Epilogue::kAdd,
                   .out = out.data(),
                   .out_stride = kN},
                  context);

  std::vector<float> row(kK);
  for (uint32_t n = 0; n < kN; ++n) {
    DequantizeRow(w.view(), n, absl::MakeSpan(row));
    for (uint32_t m = 0; m < kRows; ++m) {
      const std::vector<double> values = Values(y, m);
      double sum = 0, size = 0;
      for (uint32_t k = 0; k < kK; ++k) {
        sum += values[k] * row[k];
        size += std::abs(values[k] * row[k]);
      }
      EXPECT_NEAR(out[m * kN + n], sum + bias[n] + 1.0, 1e-6 * size + 1e-6)
          << "row " << m << " column " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulReferenceTest, testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return std::string(TensorTypeName(info.param)); });

TEST(QuantizeReference, ErrorIsAtMostHalfAStepOfTheGroup) {
  constexpr uint32_t kColumns = 96;
  KernelContext context(1);
  std::vector<float> x(kColumns);
  for (uint32_t k = 0; k < kColumns; ++k) x[k] = std::sin(1.7f * k) * (k < 32 ? 1e-3f : 1e3f);
  for (uint32_t k = 64; k < kColumns; ++k) x[k] = 0.0f;
  Activations y(1, kColumns);
  QuantizeReference({.x = x.data(), .x_stride = kColumns, .rows = 1, .columns = kColumns, .y = &y},
                    context);
  const std::vector<double> values = Values(y, 0);
  for (uint32_t k = 0; k < kColumns; ++k) {
    EXPECT_NEAR(values[k], x[k], 0.5001 * y.Groups(0)[k / 32].scale[0]) << "at " << k;
  }
}

TEST(PackedMatrix, RefusesBytesThatDoNotFit) {
  const RandomTensor w(TensorType::kQ4_1, 8, 64, 1);
  const MatrixSource source = {.tensors = {w.view()}};
  Buffer bytes(PackedBytes(source, PackedLayout::kRows));
  Pack(source, PackedLayout::kRows, {bytes.data(), bytes.size()});
  EXPECT_TRUE(PackedMatrix::Open({bytes.data(), bytes.size()}).ok());
  EXPECT_FALSE(PackedMatrix::Open({bytes.data(), 16}).ok());
  EXPECT_FALSE(PackedMatrix::Open({bytes.data(), bytes.size() - 64}).ok());
  // Any damaged word of the header is refused, except the reserved ones.
  for (uint32_t word : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 8u, 9u, 10u, 12u, 14u}) {
    Buffer damaged(bytes.size());
    std::copy(bytes.data(), bytes.data() + bytes.size(), damaged.data());
    damaged.as<uint32_t>()[word] ^= 0x40000;
    EXPECT_FALSE(PackedMatrix::Open({damaged.data(), damaged.size()}).ok()) << "word " << word;
  }
}

TEST(MatrixSource, NamesWhatDoesNotStack) {
  const RandomTensor q4(TensorType::kQ4_1, 8, 64, 1), f32(TensorType::kF32, 8, 64, 1),
      wide(TensorType::kQ4_1, 8, 96, 1), q8(TensorType::kQ8_0, 8, 64, 1);
  EXPECT_TRUE(Validate({.tensors = {q4.view(), q8.view()}}).ok());
  EXPECT_FALSE(Validate({.tensors = {}}).ok());
  EXPECT_FALSE(Validate({.tensors = {q4.view(), TensorView{}}}).ok());
  EXPECT_FALSE(Validate({.tensors = {q4.view(), wide.view()}}).ok());
  EXPECT_EQ(Validate({.tensors = {q4.view(), f32.view()}}).message(),
            "tensor 1 of a matrix: type F32 cannot be stacked on Q4_1");
  EXPECT_FALSE(Validate({.tensors = {q4.view(), q8.view()}, .order = RowOrder::kGateUp}).ok());
}

}  // namespace
}  // namespace baton::kernels
