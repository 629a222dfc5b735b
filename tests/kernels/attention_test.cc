// Every level of attention against the reference over ragged shapes, and the row contract bit for bit: chunks, block sizes,
// block tables, batches and threads must not show.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/op_table.h"
#include "tests/kernels/paged_batch.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kLayers = 2;
constexpr uint32_t kLayer = 1;
constexpr float kCanary = -77.0f;
// Spreads the scores over about +-10, so that softmax is neither flat nor a single key.
constexpr float kQueryScale = 3.0f;
constexpr float kKeyScale = 3.0f;

struct Shape {
  uint32_t kv_heads;
  uint32_t heads;
  uint32_t head_dim;
};

struct Rows {
  uint32_t identity;  // Of the content.
  uint32_t start;
  uint32_t count;
};

// [rows, heads * head_dim], without strides.
using Output = std::vector<float>;

// Runs `op` on rows whose KV stands in the arena already, with canaries between and around the rows of `out`.
Output Attend(AttentionFn op, const Shape& shape, const KvLayout& layout,
              const std::vector<Rows>& rows, uint32_t seed, uint32_t threads) {
  std::vector<uint32_t> lengths;
  uint32_t row_count = 0;
  for (const Rows& r : rows) {
    lengths.push_back(r.start + r.count);
    row_count += r.count;
  }
  PagedBatch batch(layout, lengths, seed);
  std::vector<SequenceRows> sequences;
  const uint32_t width = shape.heads * shape.head_dim;
  const uint32_t q_stride = width + 24;
  const uint32_t out_stride = width + 5;
  std::vector<float> q(row_count * q_stride);
  std::vector<float> out((row_count + 1) * out_stride, kCanary);
  uint32_t row = 0;
  for (size_t s = 0; s < rows.size(); ++s) {
    batch.Fill(s, rows[s].identity, kLayer, 0, lengths[s], kKeyScale);
    sequences.push_back(batch.Rows(s, rows[s].start, rows[s].count));
    for (uint32_t i = 0; i < rows[s].count; ++i, ++row) {
      for (uint32_t j = 0; j < width; ++j) {
        q[row * q_stride + j] =
            kQueryScale * ContentAt(3, rows[s].identity, rows[s].start + i, j);
      }
    }
  }
  KernelContext context(threads);
  op({.q = q.data(),
      .q_stride = q_stride,
      .out = out.data(),
      .out_stride = out_stride,
      .heads = shape.heads,
      .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
      .sequences = sequences,
      .kv = batch.view(),
      .layer = kLayer},
     context);
  Output dense;
  for (uint32_t r = 0; r <= row_count; ++r) {
    for (uint32_t j = 0; j < out_stride; ++j) {
      const float value = out[r * out_stride + j];
      if (r < row_count && j < width) {
        dense.push_back(value);
      } else {
        EXPECT_EQ(value, kCanary) << "row " << r << " column " << j;
      }
    }
  }
  return dense;
}

KvLayout LayoutOf(const Shape& shape, uint32_t block_tokens, KvType type) {
  return {.layers = kLayers,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .block_tokens = block_tokens,
          .type = type};
}

const char* TypeName(KvType type) {
  return type == KvType::kF32 ? "F32" : type == KvType::kF16 ? "F16" : "Bf16";
}

class AttentionTest : public testing::TestWithParam<std::tuple<CpuLevel, KvType>> {
 protected:
  void SetUp() override {
    if (!Supported(level())) GTEST_SKIP() << "this CPU lacks " << std::string(CpuLevelName(level()));
  }
  CpuLevel level() const { return std::get<0>(GetParam()); }
  KvType type() const { return std::get<1>(GetParam()); }
  AttentionFn op() const { return Bind(level())->attention; }
};

void ExpectNear(const Output& got, const Output& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  float worst = 0.0f;
  size_t at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const float difference = std::abs(got[i] - want[i]);
    if (!(difference <= worst)) {  // Also when it is NaN.
      worst = difference;
      at = i;
    }
  }
  EXPECT_LE(worst, tolerance) << "element " << at << ": " << got[at] << ", want " << want[at];
}

TEST_P(AttentionTest, OneKeyGivesItsValue) {
  const Shape shape = {2, 4, 16};
  const KvLayout layout = LayoutOf(shape, 16, type());
  const Output out = Attend(op(), shape, layout, {{3, 0, 1}}, 1, 1);
  PagedBatch batch(layout, {1}, 1);
  batch.Fill(0, 3, kLayer, 0, 1, kKeyScale);
  for (uint32_t head = 0; head < shape.heads; ++head) {
    for (uint32_t dim = 0; dim < shape.head_dim; ++dim) {
      EXPECT_EQ(out[head * shape.head_dim + dim],
                LoadElement(batch.VElement(0, kLayer, 0, head / 2, dim), type()));
    }
  }
}

TEST_P(AttentionTest, MatchesTheReference) {
  if (level() == CpuLevel::kReference) GTEST_SKIP() << "it is the reference";
  const Shape shapes[] = {{1, 1, 2},  {2, 2, 16}, {1, 3, 32}, {2, 8, 48}, {3, 9, 64},
                          {2, 6, 64}, {1, 7, 80}, {1, 4, 18}, {2, 8, 128}, {1, 2, 256}};
  const bool bf16_math = level() == CpuLevel::kAvx512 && type() == KvType::kBf16;
  const float tolerance = bf16_math ? 0.04f : 1e-4f;
  std::vector<Rows> rows = {{0, 0, 70}, {1, 505, 9}, {2, 0, 1}};
  for (const uint32_t length : {2u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 33u, 63u, 65u, 511u, 512u, 513u, 1025u}) {
    rows.push_back({length, length - 1, 1});
  }
  uint32_t block_tokens = 8;
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.kv_heads << " KV heads, " << shape.heads << " heads of "
                                    << shape.head_dim << ", blocks of " << block_tokens);
    const KvLayout layout = LayoutOf(shape, block_tokens, type());
    const Output want = Attend(AttentionReference, shape, layout, rows, 1, 2);
    ExpectNear(Attend(op(), shape, layout, rows, 1, 2), want, tolerance);
    block_tokens = block_tokens == 128 ? 8 : block_tokens * 2;
  }
}

TEST_P(AttentionTest, EveryShortLengthMatchesTheReference) {
  if (level() == CpuLevel::kReference) GTEST_SKIP() << "it is the reference";
  const Shape shape = {1, 3, 32};
  const bool bf16_math = level() == CpuLevel::kAvx512 && type() == KvType::kBf16;
  std::vector<Rows> rows;
  for (uint32_t length = 1; length <= 70; ++length) rows.push_back({length, length / 2, length - length / 2});
  for (const uint32_t block_tokens : {8u, 16u, 64u}) {
    const KvLayout layout = LayoutOf(shape, block_tokens, type());
    ExpectNear(Attend(op(), shape, layout, rows, 2, 1),
               Attend(AttentionReference, shape, layout, rows, 2, 1), bf16_math ? 0.04f : 1e-4f);
  }
}

TEST_P(AttentionTest, AnEmptyBatchIsLegal) {
  const Shape shape = {1, 1, 16};
  EXPECT_TRUE(Attend(op(), shape, LayoutOf(shape, 16, type()), {}, 1, 2).empty());
}

// The reference is slow, and has nothing to get wrong beyond a block.
uint32_t InvarianceLength(CpuLevel level) { return level == CpuLevel::kReference ? 90 : 1100; }

void ExpectSameBits(const Output& got, const Output& whole, uint32_t first_row, uint32_t width) {
  ASSERT_LE(first_row * width + got.size(), whole.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], whole[first_row * width + i])
        << "row " << first_row + i / width << " column " << i % width;
  }
}

TEST_P(AttentionTest, ChunksGiveTheSameBits) {
  const Shape shape = {2, 6, 64};
  const uint32_t length = InvarianceLength(level());
  const KvLayout layout = LayoutOf(shape, 16, type());
  const Output whole = Attend(op(), shape, layout, {{5, 0, length}}, 1, 1);
  for (const uint32_t chunk : {16u, 37u, 512u}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
    for (uint32_t start = 0; start < length; start += chunk) {
      const uint32_t count = std::min(chunk, length - start);
      ExpectSameBits(Attend(op(), shape, layout, {{5, start, count}}, 2, 2), whole, start,
                     shape.heads * shape.head_dim);
    }
  }
  for (uint32_t position = 0; position < length; position += position < 100 ? 1 : 41) {
    ExpectSameBits(Attend(op(), shape, layout, {{5, position, 1}}, 3, 3), whole, position,
                   shape.heads * shape.head_dim);
  }
}

TEST_P(AttentionTest, BlockSizesTablesAndThreadsGiveTheSameBits) {
  const Shape shape = {1, 4, 48};
  const uint32_t length = InvarianceLength(level());
  const Output whole = Attend(op(), shape, LayoutOf(shape, 16, type()), {{5, 0, length}}, 1, 1);
  for (const uint32_t block_tokens : {8u, 16u, 32u, 64u, 128u}) {
    for (const uint32_t threads : {1u, 3u}) {
      SCOPED_TRACE(testing::Message() << "blocks of " << block_tokens << ", threads " << threads);
      ExpectSameBits(Attend(op(), shape, LayoutOf(shape, block_tokens, type()), {{5, 0, length}},
                            block_tokens + threads, threads),
                     whole, 0, shape.heads * shape.head_dim);
    }
  }
}

TEST_P(AttentionTest, BatchesGiveTheSameBits) {
  const Shape shape = {3, 9, 64};
  const uint32_t width = shape.heads * shape.head_dim;
  const uint32_t length = InvarianceLength(level());
  const KvLayout layout = LayoutOf(shape, 32, type());
  const std::vector<Rows> rows = {{1, length - 1, 1}, {2, 20, 40}, {3, 60, 1}, {4, length - 30, 30}, {5, 0, 3}};
  std::vector<Rows> many = rows;
  for (uint32_t i = 0; i < 40; ++i) many.push_back({10 + i, i, 1});  // No longer few tasks.
  std::reverse(many.begin(), many.end());
  const Output together = Attend(op(), shape, layout, rows, 1, 3);
  const Output crowded = Attend(op(), shape, layout, many, 2, 2);
  uint32_t row = 0;
  uint32_t crowded_row = static_cast<uint32_t>(crowded.size()) / width;
  for (const Rows& r : rows) {
    const Output alone = Attend(op(), shape, layout, {r}, 3, 2);
    ExpectSameBits(alone, together, row, width);
    crowded_row -= r.count;
    ExpectSameBits(alone, crowded, crowded_row, width);
    row += r.count;
  }
}

// The checks above would see a key more or less, a stale block and another order.
TEST_P(AttentionTest, AWrongPositionShows) {
  const Shape shape = {1, 1, 16};
  const KvLayout layout = LayoutOf(shape, 8, type());
  const Output a = Attend(op(), shape, layout, {{5, 20, 1}}, 1, 1);
  const Output b = Attend(op(), shape, layout, {{5, 21, 1}}, 1, 1);
  const Output c = Attend(op(), shape, layout, {{6, 20, 1}}, 1, 1);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

INSTANTIATE_TEST_SUITE_P(
    Levels, AttentionTest,
    testing::Combine(testing::Values(CpuLevel::kReference, CpuLevel::kAvx512NoBf16,
                                     CpuLevel::kAvx512),
                     testing::Values(KvType::kF32, KvType::kF16, KvType::kBf16)),
    [](const auto& info) {
      std::string name(CpuLevelName(std::get<0>(info.param)));
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_" + TypeName(std::get<1>(info.param));
    });

}  // namespace
}  // namespace baton::kernels
