// Every level of matmul, quantize and rms_norm against the reference, over shapes chosen to hurt,
// with canaries around the results; and the row contract: a row's bits do not depend on the other
// rows, the threads or the path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/check.h"
#include "kernels/op_table.h"
#include "tests/kernels/random_tensor.h"

namespace baton::kernels {
namespace {

constexpr CpuLevel kLevels[] = {CpuLevel::kAvx2, CpuLevel::kAvx512NoBf16, CpuLevel::kAvx512};
constexpr uint32_t kRowCounts[] = {0, 1, 3, 4, 5, 31, 32, 33, 130};
constexpr float kCanary = -12345.0f;

std::string LevelName(CpuLevel level) {
  std::string name(CpuLevelName(level));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

// Rows of x whose scales differ much from group to group, as activations' do.
std::vector<float> RandomRows(uint32_t rows, uint32_t columns, uint32_t seed) {
  std::vector<float> x = RandomFloats(size_t{rows} * columns, seed);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / 32 % 7 == 3) x[i] *= 50.0f;
    if (i / 32 % 11 == 5) x[i] = 0.0f;
  }
  return x;
}

// A matrix packed for a level, its tensors, and the ops and context to use it with.
class Layer {
 public:
  Layer(CpuLevel level, const MatrixSource& source, uint32_t threads = 1)
      : ops_(*Bind(level)), context_(threads), bytes_(PackedBytes(source, ops_.layout)) {
    Pack(source, ops_.layout, {bytes_.data(), bytes_.size()});
    const auto weights = PackedMatrix::Open({bytes_.data(), bytes_.size()});
    CHECK_OK(weights.status());
    weights_ = *weights;
  }

  const PackedMatrix& weights() const { return weights_; }

  // [rows, out_columns] with a canary column behind each row and a canary row before and behind all
  // of them.
  std::vector<float> Run(absl::Span<const float> x, uint32_t rows, Epilogue epilogue,
                         const float* bias = nullptr) {
    const uint32_t stride = weights_.out_columns() + 1;
    std::vector<float> out((rows + 2) * stride, kCanary);
    for (uint32_t m = 0; m < rows; ++m) {
      for (uint32_t n = 0; n + 1 < stride; ++n) {
        out[(m + 1) * stride + n] = 0.25f * (m % 5) - 0.01f * n;
      }
    }
    Activations y(rows, weights_.columns());
    ops_.quantize({.x = x.data(),
                   .x_stride = weights_.columns(),
                   .rows = rows,
                   .columns = weights_.columns(),
                   .format = weights_.activation_format(),
                   .y = &y},
                  context_);
    ops_.matmul({.x = &y,
                 .weights = &weights_,
                 .bias = bias,
                 .epilogue = epilogue,
                 .out = out.data() + stride,
                 .out_stride = stride},
                context_);
    return out;
  }

 private:
  BoundOps ops_;
  KernelContext context_;
  Buffer bytes_;
  PackedMatrix weights_;
};

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (want[i] == kCanary) {
      ASSERT_EQ(got[i], kCanary) << "canary at " << i;
    } else {
      ASSERT_NEAR(got[i], want[i], tolerance * (1.0f + std::abs(want[i]))) << "at " << i;
    }
  }
}

class MatmulConformance : public testing::TestWithParam<std::tuple<CpuLevel, TensorType>> {
 protected:
  CpuLevel level() const { return std::get<0>(GetParam()); }
  TensorType type() const { return std::get<1>(GetParam()); }
  // Columns of x that are legal for the type: one block, an odd number of blocks, longer than a run
  // of the float path.
  std::vector<uint32_t> LegalColumns() const {
    const uint32_t block = BlockElements(type());
    if (block == 1) return {1, 7, 64, 200};
    if (block == 32) return {32, 96, 576};
    return {256, 768};
  }
  void SetUp() override {
    if (!Supported(level())) GTEST_SKIP() << "this CPU lacks " << CpuLevelName(level());
  }
};

TEST_P(MatmulConformance, StoreAddAndBias) {
  for (uint32_t columns : LegalColumns()) {
    for (uint32_t n : {1u, 15u, 32u, 49u}) {
      const RandomTensor w(type(), n, columns, n);
      const MatrixSource source = {.tensors = {w.view()}};
      Layer reference(CpuLevel::kReference, source), tested(level(), source);
      const std::vector<float> bias = RandomFloats(n, 7);
      for (uint32_t rows : kRowCounts) {
        SCOPED_TRACE(testing::Message() << "K " << columns << " N " << n << " M " << rows);
        const std::vector<float> x = RandomRows(rows, columns, rows);
        ExpectNear(tested.Run(x, rows, Epilogue::kStore), reference.Run(x, rows, Epilogue::kStore),
                   2e-5f);
        ExpectNear(tested.Run(x, rows, Epilogue::kAdd, bias.data()),
                   reference.Run(x, rows, Epilogue::kAdd, bias.data()), 2e-5f);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MatmulConformance, SwiGlu) {
  const uint32_t columns = LegalColumns().back();
  for (uint32_t n : {1u, 16u, 37u}) {
    const RandomTensor gate(type(), n, columns, 1), up(type(), n, columns, 2);
    const MatrixSource source = {.tensors = {gate.view(), up.view()}, .order = RowOrder::kGateUp};
    Layer reference(CpuLevel::kReference, source), tested(level(), source);
    const std::vector<float> bias = RandomFloats(2 * n, 7);
    for (uint32_t rows : {1u, 5u, 33u}) {
      SCOPED_TRACE(testing::Message() << "N " << n << " M " << rows);
      const std::vector<float> x = RandomRows(rows, columns, rows);
      ExpectNear(tested.Run(x, rows, Epilogue::kSwiGlu, bias.data()),
                 reference.Run(x, rows, Epilogue::kSwiGlu, bias.data()), 2e-5f);
      if (HasFatalFailure()) return;
    }
  }
}

// Three tensors, the second of another type where that is legal: results stand side by side.
TEST_P(MatmulConformance, StackedTensors) {
  const TensorType other =
      FormatFor(type()) == ActivationFormat::kF32 ? TensorType::kF16 : TensorType::kQ8_0;
  const RandomTensor q(type(), 50, 512, 1), k(type(), 7, 512, 2), v(other, 20, 512, 3);
  const MatrixSource source = {.tensors = {q.view(), k.view(), v.view()}};
  Layer reference(CpuLevel::kReference, source), tested(level(), source, 2);
  const std::vector<float> bias = RandomFloats(77, 7);
  for (uint32_t rows : {1u, 6u, 40u}) {
    const std::vector<float> x = RandomRows(rows, 512, rows);
    ExpectNear(tested.Run(x, rows, Epilogue::kStore, bias.data()),
               reference.Run(x, rows, Epilogue::kStore, bias.data()), 2e-5f);
  }
}

// The row contract. 1100 rows take the path with scratch and several chunks; 1 to 32 read the
// packed weights directly.
TEST_P(MatmulConformance, BitsOfARowDependOnTheRowAlone) {
  const uint32_t columns = LegalColumns().back();
  constexpr uint32_t kN = 80, kRows = 1100;
  const RandomTensor w(type(), kN, columns, 1);
  const MatrixSource source = {.tensors = {w.view()}};
  const std::vector<float> x = RandomRows(kRows, columns, 1);
  Layer all(level(), source, 1);
  const std::vector<float> want = all.Run(x, kRows, Epilogue::kAdd);
  constexpr uint32_t kStride = kN + 1;
  for (uint32_t threads : {1u, 2u, 3u}) {
    Layer part(level(), source, threads);
    uint32_t first = 0;
    for (uint32_t rows : {1u, 1u, 2u, 3u, 4u, 7u, 32u, 33u, 64u, 130u, 700u}) {
      const std::vector<float> got = part.Run(
          absl::MakeConstSpan(x).subspan(first * columns, rows * columns), rows, Epilogue::kStore);
      for (uint32_t m = 0; m < rows; ++m) {
        for (uint32_t n = 0; n < kN; ++n) {
          // The same start as Run() gives row first + m of all.
          const float added = (0.25f * ((first + m) % 5) - 0.01f * n) + got[(m + 1) * kStride + n];
          const float wanted = want[(first + m + 1) * kStride + n];
          ASSERT_EQ(std::memcmp(&added, &wanted, 4), 0)
              << threads << " threads, row " << first + m << " of a batch of " << rows
              << ", column " << n << ": " << added << " is not " << wanted;
        }
      }
      first += rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MatmulConformance,
                         testing::Combine(testing::ValuesIn(kLevels), testing::ValuesIn(kAllTypes)),
                         [](const auto& info) {
                           return LevelName(std::get<0>(info.param)) + "_" +
                                  std::string(TensorTypeName(std::get<1>(info.param)));
                         });

class RowConformance : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    if (!Supported(GetParam())) GTEST_SKIP() << "this CPU lacks " << CpuLevelName(GetParam());
  }
};

void ExpectSameInt8(const Activations& got, const Activations& want) {
  ASSERT_EQ(got.rows(), want.rows());
  ASSERT_EQ(got.columns(), want.columns());
  for (uint32_t row = 0; row < want.rows(); ++row) {
    const uint32_t lane = row % kRowBlock;
    for (uint32_t g = 0; g < want.columns() / kGroupElements; ++g) {
      const ActivationGroup& a = got.Groups(row / kRowBlock)[g];
      const ActivationGroup& b = want.Groups(row / kRowBlock)[g];
      for (uint32_t k = 0; k < kGroupElements; ++k) {
        ASSERT_EQ(a.q[k / 4][lane][k % 4], b.q[k / 4][lane][k % 4])
            << "row " << row << " group " << g << " at " << k;
      }
      ASSERT_EQ(a.scale[lane], b.scale[lane]) << "row " << row << " group " << g;
      ASSERT_EQ(a.sum[lane], b.sum[lane]) << "row " << row << " group " << g;
      ASSERT_EQ(a.start[lane], b.start[lane]);
      ASSERT_EQ(a.half_start[0][lane], b.half_start[0][lane]);
      ASSERT_EQ(a.half_start[1][lane], b.half_start[1][lane]);
    }
  }
}

void ExpectSameFloats(const Activations& got, const Activations& want, float tolerance) {
  for (uint32_t row = 0; row < want.rows(); ++row) {
    for (uint32_t k = 0; k < want.columns(); ++k) {
      const uint32_t at = k * kRowBlock + row % kRowBlock;
      const float wanted = want.Floats(row / kRowBlock)[at];
      ASSERT_NEAR(got.Floats(row / kRowBlock)[at], wanted, tolerance * std::abs(wanted))
          << "row " << row << " at " << k;
    }
  }
}

TEST_P(RowConformance, QuantizeGivesTheSameBits) {
  const BoundOps ops = *Bind(GetParam());
  KernelContext context(2);
  for (uint32_t columns : {32u, 96u, 576u}) {
    for (uint32_t rows : kRowCounts) {
      const std::vector<float> x = RandomRows(rows, columns + 5, rows);
      Activations got(rows, columns), want(rows, columns);
      QuantizeArgs args = {
          .x = x.data(), .x_stride = columns + 5, .rows = rows, .columns = columns, .y = &want};
      QuantizeReference(args, context);
      args.y = &got;
      ops.quantize(args, context);
      ExpectSameInt8(got, want);
    }
  }
}

TEST_P(RowConformance, QuantizeCopiesFloats) {
  const BoundOps ops = *Bind(GetParam());
  KernelContext context(2);
  for (uint32_t columns : {1u, 15u, 64u, 100u}) {
    const std::vector<float> x = RandomRows(6, columns, 1);
    Activations got(6, columns), want(6, columns);
    QuantizeArgs args = {.x = x.data(),
                         .x_stride = columns,
                         .rows = 6,
                         .columns = columns,
                         .format = ActivationFormat::kF32,
                         .y = &want};
    QuantizeReference(args, context);
    args.y = &got;
    ops.quantize(args, context);
    ExpectSameFloats(got, want, 0.0f);
  }
}

TEST_P(RowConformance, RmsNorm) {
  const BoundOps ops = *Bind(GetParam());
  KernelContext context(2);
  for (uint32_t hidden : {1u, 7u, 16u, 100u, 576u}) {
    for (uint32_t tokens : kRowCounts) {
      for (bool with_residual : {false, true}) {
        SCOPED_TRACE(testing::Message() << "hidden " << hidden << " tokens " << tokens
                                        << " residual " << with_residual);
        const uint32_t stride = hidden + 3;
        std::vector<float> x = RandomFloats(size_t{tokens} * stride, 1), x_want = x;
        const std::vector<float> residual = RandomFloats(size_t{tokens} * hidden, 2),
                                 weight = RandomFloats(hidden, 3);
        Activations got(tokens, hidden), want(tokens, hidden);
        RmsNormArgs args = {.x = x_want.data(),
                            .x_stride = stride,
                            .weight = weight.data(),
                            .tokens = tokens,
                            .hidden = hidden,
                            .epsilon = 1e-5f,
                            .format = ActivationFormat::kF32,
                            .y = &want};
        if (with_residual) {
          args.residual = residual.data();
          args.residual_stride = hidden;
        }
        RmsNormReference(args, context);
        args.x = x.data();
        args.y = &got;
        ops.rms_norm(args, context);
        ASSERT_EQ(x, x_want);
        ExpectSameFloats(got, want, 1e-5f);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Quantised: equal up to a step where the norm's last bit decides the rounding.
TEST_P(RowConformance, RmsNormQuantises) {
  const BoundOps ops = *Bind(GetParam());
  KernelContext context(1);
  constexpr uint32_t kTokens = 9, kHidden = 576;
  std::vector<float> x = RandomRows(kTokens, kHidden, 1);
  const std::vector<float> weight = RandomFloats(kHidden, 3);
  Activations got(kTokens, kHidden), want(kTokens, kHidden);
  RmsNormArgs args = {.x = x.data(),
                      .x_stride = kHidden,
                      .weight = weight.data(),
                      .tokens = kTokens,
                      .hidden = kHidden,
                      .epsilon = 1e-5f,
                      .y = &want};
  RmsNormReference(args, context);
  args.y = &got;
  ops.rms_norm(args, context);
  uint32_t different = 0;
  for (uint32_t row = 0; row < kTokens; ++row) {
    for (uint32_t k = 0; k < kHidden; ++k) {
      const ActivationGroup& a = got.Groups(row / kRowBlock)[k / 32];
      const ActivationGroup& b = want.Groups(row / kRowBlock)[k / 32];
      const int difference =
          a.q[k % 32 / 4][row % kRowBlock][k % 4] - b.q[k % 32 / 4][row % kRowBlock][k % 4];
      ASSERT_LE(std::abs(difference), 1);
      different += difference != 0;
    }
  }
  EXPECT_LE(different, kTokens * kHidden / 500);
}

TEST_P(RowConformance, RmsNormTakesTheRowsAskedFor) {
  const BoundOps ops = *Bind(GetParam());
  KernelContext context(1);
  constexpr uint32_t kHidden = 64;
  std::vector<float> x = RandomRows(8, kHidden, 1);
  const std::vector<float> weight = RandomFloats(kHidden, 3);
  const uint32_t rows[] = {7, 0, 3, 3, 5};
  Activations all(8, kHidden), some(5, kHidden);
  RmsNormArgs args = {.x = x.data(),
                      .x_stride = kHidden,
                      .weight = weight.data(),
                      .tokens = 8,
                      .hidden = kHidden,
                      .epsilon = 1e-5f,
                      .format = ActivationFormat::kF32,
                      .y = &all};
  ops.rms_norm(args, context);
  args.row_indices = rows;
  args.tokens = 5;
  args.y = &some;
  ops.rms_norm(args, context);
  for (uint32_t t = 0; t < 5; ++t) {
    for (uint32_t k = 0; k < kHidden; ++k) {
      ASSERT_EQ(some.Floats(t / kRowBlock)[k * kRowBlock + t % kRowBlock],
                all.Floats(rows[t] / kRowBlock)[k * kRowBlock + rows[t] % kRowBlock]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RowConformance, testing::ValuesIn(kLevels),
                         [](const auto& info) { return LevelName(info.param); });

TEST(Embed, GivesTheRowsOfTheTokens) {
  KernelContext context(2);
  for (TensorType type : kAllTypes) {
    const RandomTensor table(type, 40, 256, 1);
    const std::vector<uint32_t> tokens = {39, 0, 7, 7,  12, 1,  2,  3,  4, 5,
                                          6,  8, 9, 10, 11, 13, 14, 15, 16};
    std::vector<float> out(tokens.size() * 256 + 1, kCanary), row(256);
    Embed({.table = &table.view(),
           .tokens = tokens.data(),
           .rows = static_cast<uint32_t>(tokens.size()),
           .out = out.data()},
          context);
    for (size_t t = 0; t < tokens.size(); ++t) {
      DequantizeRow(table.view(), tokens[t], absl::MakeSpan(row));
      ASSERT_EQ(std::memcmp(&out[t * 256], row.data(), 1024), 0)
          << TensorTypeName(type) << " token " << t;
    }
    EXPECT_EQ(out.back(), kCanary);
  }
}

TEST(Bind, NamesWhatFallsBack) {
  EXPECT_TRUE(Bind(CpuLevel::kReference)->fallbacks.empty());
  if (Supported(CpuLevel::kAvx2)) {
    EXPECT_THAT(Bind(CpuLevel::kAvx2)->fallbacks,
                testing::IsSupersetOf({"rms_norm", "quantize", "matmul"}));
  }
  for (CpuLevel level : kLevels) {
    if (Supported(level)) continue;
    EXPECT_EQ(Bind(level).status().code(), absl::StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace baton::kernels
