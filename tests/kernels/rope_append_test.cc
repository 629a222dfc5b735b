// Every level of rope_append against the reference, element by element and with every other byte of the arena unchanged; and
// the same bits whatever the chunk, the block size and the threads.
#include "kernels/rope_append/rope_append.h"

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

constexpr uint32_t kLayer = 1;
constexpr uint32_t kPositions = 200;

struct Shape {
  uint32_t kv_heads;
  uint32_t heads;
  uint32_t head_dim;
  uint32_t rope_dims;
};

struct Rows {
  uint32_t identity;
  uint32_t start;
  uint32_t count;
};

// A batch whose rows were appended by an op.
struct Appended {
  PagedBatch batch;
  std::vector<float> qkv;
  uint64_t qkv_stride;
};

std::vector<float> Table(uint32_t stream, const Shape& shape) {
  std::vector<float> table(kPositions * shape.rope_dims / 2);
  for (size_t i = 0; i < table.size(); ++i) table[i] = ContentAt(stream, 0, 0, static_cast<uint32_t>(i));
  return table;
}

Appended Append(RopeAppendFn op, const Shape& shape, uint32_t block_tokens, KvType type,
                const std::vector<Rows>& rows, uint32_t chunk, uint32_t seed, uint32_t threads) {
  const KvLayout layout = {.layers = 3,
                           .kv_heads = shape.kv_heads,
                           .head_dim = shape.head_dim,
                           .block_tokens = block_tokens,
                           .type = type};
  std::vector<uint32_t> lengths;
  for (const Rows& r : rows) lengths.push_back(r.start + r.count);
  Appended result = {.batch = PagedBatch(layout, lengths, seed), .qkv = {}, .qkv_stride = 0};
  const uint32_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  result.qkv_stride = width + 3;
  for (const Rows& r : rows) {
    for (uint32_t i = 0; i < r.count; ++i) {
      for (uint32_t j = 0; j < result.qkv_stride; ++j) {
        result.qkv.push_back(10.0f * ContentAt(3, r.identity, r.start + i, j));
      }
    }
  }
  const std::vector<float> cos = Table(4, shape);
  const std::vector<float> sin = Table(5, shape);
  KernelContext context(threads);
  // In chunks of `chunk` rows of each sequence; 0: all at once.
  uint32_t row = 0;
  std::vector<SequenceRows> all;
  for (size_t s = 0; s < rows.size(); ++s) {
    const uint32_t step = chunk == 0 ? rows[s].count : chunk;
    for (uint32_t i = 0; i < rows[s].count; i += step) {
      const uint32_t count = std::min(step, rows[s].count - i);
      const SequenceRows sequence = result.batch.Rows(s, rows[s].start + i, count);
      if (chunk == 0) {
        all.push_back(sequence);
        continue;
      }
      op({.qkv = result.qkv.data() + row * result.qkv_stride,
          .qkv_stride = result.qkv_stride,
          .cos = cos.data(),
          .sin = sin.data(),
          .rope_dims = shape.rope_dims,
          .heads = shape.heads,
          .sequences = {&sequence, 1},
          .kv = result.batch.view(),
          .layer = kLayer},
         context);
      row += count;
    }
  }
  if (chunk == 0) {
    op({.qkv = result.qkv.data(),
        .qkv_stride = result.qkv_stride,
        .cos = cos.data(),
        .sin = sin.data(),
        .rope_dims = shape.rope_dims,
        .heads = shape.heads,
        .sequences = all,
        .kv = result.batch.view(),
        .layer = kLayer},
       context);
  }
  return result;
}

class RopeAppendTest : public testing::TestWithParam<std::tuple<CpuLevel, KvType>> {
 protected:
  void SetUp() override {
    if (!Supported(level())) GTEST_SKIP() << "this CPU lacks " << std::string(CpuLevelName(level()));
  }
  CpuLevel level() const { return std::get<0>(GetParam()); }
  KvType type() const { return std::get<1>(GetParam()); }
  RopeAppendFn op() const { return Bind(level())->rope_append; }
  // Of a value of about 10, after f32 arithmetic in another order and the rounding that this may tip over.
  float Tolerance() const {
    return type() == KvType::kF32 ? 1e-5f : type() == KvType::kF16 ? 0.02f : 0.15f;
  }
};

constexpr Shape kShapes[] = {{1, 1, 2, 2},   {2, 2, 16, 16}, {1, 4, 18, 10},  {1, 3, 48, 32},
                             {3, 9, 64, 64}, {2, 2, 80, 0},  {1, 2, 128, 128}, {1, 2, 256, 64}};

TEST_P(RopeAppendTest, MatchesTheReferenceAndTouchesNothingElse) {
  const std::vector<Rows> rows = {{1, 0, 37}, {2, 41, 1}, {3, 7, 2}, {4, 128, 60}, {5, 0, 1}};
  uint32_t block_tokens = 8;
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.kv_heads << " KV heads of " << shape.head_dim << ", "
                                    << shape.rope_dims << " rotated, blocks of " << block_tokens);
    const Appended want = Append(RopeAppendReference, shape, block_tokens, type(), rows, 0, 1, 1);
    const Appended got = Append(op(), shape, block_tokens, type(), rows, 0, 1, 2);
    ASSERT_EQ(got.qkv.size(), want.qkv.size());
    for (size_t i = 0; i < got.qkv.size(); ++i) ASSERT_NEAR(got.qkv[i], want.qkv[i], 1e-5f) << i;
    // Takes over what may differ by a rounding, so that all the rest must be equal.
    for (size_t s = 0; s < rows.size(); ++s) {
      for (uint32_t p = rows[s].start; p < rows[s].start + rows[s].count; ++p) {
        for (uint32_t i = 0; i < shape.kv_heads * shape.head_dim; ++i) {
          const uint32_t head = i / shape.head_dim, dim = i % shape.head_dim;
          uint8_t* k = got.batch.KElement(s, kLayer, p, head, dim);
          const uint8_t* want_k = want.batch.KElement(s, kLayer, p, head, dim);
          ASSERT_NEAR(LoadElement(k, type()), LoadElement(want_k, type()), Tolerance())
              << "K of " << s << " at " << p << " head " << head << " dim " << dim;
          std::memcpy(k, want_k, type() == KvType::kF32 ? 4 : 2);
        }
      }
    }
    const uint64_t bytes = got.batch.view().layout.block_bytes() * got.batch.view().block_count;
    EXPECT_EQ(std::memcmp(got.batch.view().base, want.batch.view().base, bytes), 0)
        << "V or bytes that are not ours";
    block_tokens = block_tokens == 128 ? 8 : block_tokens * 2;
  }
}

TEST_P(RopeAppendTest, ChunksBlocksAndThreadsGiveTheSameBits) {
  const Shape shape = {2, 4, 48, 32};
  const std::vector<Rows> rows = {{1, 1, 99}, {2, 30, 33}};
  const Appended whole = Append(op(), shape, 16, type(), rows, 0, 1, 1);
  for (const uint32_t chunk : {0u, 1u, 7u, 32u}) {
    for (const uint32_t block_tokens : {8u, 64u}) {
      const Appended other = Append(op(), shape, block_tokens, type(), rows, chunk, 2 + chunk, 3);
      ASSERT_EQ(other.qkv, whole.qkv);
      for (size_t s = 0; s < rows.size(); ++s) {
        for (uint32_t p = rows[s].start; p < rows[s].start + rows[s].count; ++p) {
          for (uint32_t i = 0; i < shape.kv_heads * shape.head_dim; ++i) {
            const uint32_t head = i / shape.head_dim, dim = i % shape.head_dim;
            const size_t bytes = type() == KvType::kF32 ? 4 : 2;
            ASSERT_EQ(std::memcmp(other.batch.KElement(s, kLayer, p, head, dim),
                                  whole.batch.KElement(s, kLayer, p, head, dim), bytes),
                      0)
                << "K of " << s << " at " << p;
            ASSERT_EQ(std::memcmp(other.batch.VElement(s, kLayer, p, head, dim),
                                  whole.batch.VElement(s, kLayer, p, head, dim), bytes),
                      0)
                << "V of " << s << " at " << p;
          }
        }
      }
    }
  }
}

// Tiles of rows begin inside a pair of tokens here, so two threads write the halves of the same words.
TEST_P(RopeAppendTest, NeighboursOfAPairDoNotRace) {
  const Shape shape = {2, 2, 64, 64};
  const std::vector<Rows> rows = {{1, 1, 150}};
  const Appended want = Append(op(), shape, 16, type(), rows, 0, 1, 1);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Appended got = Append(op(), shape, 16, type(), rows, 0, 1, 4);
    const uint64_t bytes = got.batch.view().layout.block_bytes() * got.batch.view().block_count;
    ASSERT_EQ(std::memcmp(got.batch.view().base, want.batch.view().base, bytes), 0);
  }
}

TEST_P(RopeAppendTest, F16SaturatesAndNanStaysNan) {
  const KvLayout layout = {.layers = 1, .kv_heads = 1, .head_dim = 2, .block_tokens = 8, .type = type()};
  PagedBatch batch(layout, {1}, 1);
  std::vector<float> qkv = {1.0f, 2.0f, 1e6f, NAN, -1e6f, 3.0f};
  const SequenceRows sequence = batch.Rows(0, 0, 1);
  KernelContext context(1);
  op()({.qkv = qkv.data(),
        .qkv_stride = 6,
        .heads = 1,
        .sequences = {&sequence, 1},
        .kv = batch.view(),
        .layer = 0},
       context);
  const float large = type() == KvType::kF16 ? 65504.0f : 1e6f;
  EXPECT_NEAR(LoadElement(batch.KElement(0, 0, 0, 0, 0), type()), large, 4000.0f);
  EXPECT_TRUE(std::isnan(LoadElement(batch.KElement(0, 0, 0, 0, 1), type())));
  EXPECT_NEAR(LoadElement(batch.VElement(0, 0, 0, 0, 0), type()), -large, 4000.0f);
  EXPECT_EQ(LoadElement(batch.VElement(0, 0, 0, 0, 1), type()), 3.0f);
}

INSTANTIATE_TEST_SUITE_P(
    Levels, RopeAppendTest,
    testing::Combine(testing::Values(CpuLevel::kReference, CpuLevel::kAvx512NoBf16),
                     testing::Values(KvType::kF32, KvType::kF16, KvType::kBf16)),
    [](const auto& info) {
      std::string name(CpuLevelName(std::get<0>(info.param)));
      std::replace(name.begin(), name.end(), '-', '_');
      const KvType type = std::get<1>(info.param);
      return name + (type == KvType::kF32 ? "_F32" : type == KvType::kF16 ? "_F16" : "_Bf16");
    });

}  // namespace
}  // namespace baton::kernels
