#include "kvstore/kv_block_pool.h"

#include <map>
#include <random>
#include <vector>

#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::kvstore {
namespace {

std::vector<KvBlockId> Take(KvBlockPool& pool, size_t count) {
  std::vector<KvBlockId> blocks(count);
  EXPECT_TRUE(pool.Allocate(absl::MakeSpan(blocks)).ok());
  return blocks;
}

TEST(KvBlockPool, HandsOutAscendingBlocksAtFirst) {
  KvBlockPool pool(4);
  const std::vector<KvBlockId> blocks = Take(pool, 3);
  EXPECT_THAT(blocks, testing::ElementsAre(KvBlockId{0}, KvBlockId{1}, KvBlockId{2}));
  pool.Release(blocks);
}

TEST(KvBlockPool, RefusesAllOrNothingWhenTooFewAreFree) {
  KvBlockPool pool(4);
  const std::vector<KvBlockId> held = Take(pool, 3);
  std::vector<KvBlockId> more(2);
  const absl::Status refused = pool.Allocate(absl::MakeSpan(more));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "need 2 KV blocks, 1 free and unreserved");
  EXPECT_EQ(pool.counts().free, 1u);
  pool.Release(held);
}

TEST(KvBlockPool, KeepsReservedBlocksFromOthers) {
  KvBlockPool pool(4);
  ASSERT_TRUE(pool.Reserve(3).ok());
  EXPECT_EQ(pool.Reserve(2).code(), absl::StatusCode::kResourceExhausted);
  std::vector<KvBlockId> stranger(2);
  EXPECT_EQ(pool.Allocate(absl::MakeSpan(stranger)).code(), absl::StatusCode::kResourceExhausted);

  std::vector<KvBlockId> owner(2);
  pool.AllocateReserved(absl::MakeSpan(owner));
  const KvPoolCounts counts = pool.counts();
  EXPECT_EQ(counts.total, 4u);
  EXPECT_EQ(counts.free, 2u);
  EXPECT_EQ(counts.reserved, 1u);
  EXPECT_EQ(counts.held, 2u);
  pool.Unreserve(1);
  pool.Release(owner);
}

TEST(KvBlockPool, FreesASharedBlockWithItsLastReference) {
  KvBlockPool pool(1);
  const std::vector<KvBlockId> blocks = Take(pool, 1);
  pool.Share(blocks[0]);
  pool.Release(blocks[0]);
  EXPECT_EQ(pool.counts().held, 1u);
  pool.Release(blocks[0]);
  EXPECT_EQ(pool.counts().held, 0u);
}

TEST(KvBlockPool, GenerationTellsOwnersApart) {
  KvBlockPool pool(1);
  std::vector<KvBlockId> blocks = Take(pool, 1);
  const uint64_t first = pool.generation(blocks[0]);
  pool.Share(blocks[0]);
  pool.Release(blocks[0]);
  EXPECT_EQ(pool.generation(blocks[0]), first);
  pool.Release(blocks[0]);
  EXPECT_NE(pool.generation(blocks[0]), first);
  blocks = Take(pool, 1);
  EXPECT_NE(pool.generation(blocks[0]), first);
  pool.Release(blocks[0]);
}

TEST(KvBlockPool, SharesOnlyWithTheOwnerNamed) {
  KvBlockPool pool(2);
  const KvBlockId block = Take(pool, 1)[0];
  const KvBlockRef ref{block, pool.generation(block)};
  EXPECT_TRUE(pool.ShareIfCurrent(ref));
  pool.Release(block);
  pool.Release(block);
  EXPECT_FALSE(pool.ShareIfCurrent(ref)) << "freed";
  EXPECT_FALSE(pool.ShareIfCurrent({block, pool.generation(block)})) << "free, right generation";
  ASSERT_EQ(Take(pool, 1)[0], block);
  EXPECT_FALSE(pool.ShareIfCurrent(ref)) << "another owner";
  EXPECT_FALSE(pool.ShareIfCurrent({KvBlockId{2}, 1})) << "no such block";
  pool.Release(block);
}

TEST(KvBlockPool, PublishesEachGeneration) {
  std::vector<std::atomic<uint64_t>> published(3);
  KvBlockPool pool(3, absl::MakeSpan(published));
  const std::vector<KvBlockId> blocks = Take(pool, 2);
  pool.Release(blocks[0]);
  for (uint32_t b = 0; b < 3; ++b) {
    EXPECT_EQ(published[b].load(), pool.generation(KvBlockId{b})) << "of block " << b;
  }
  EXPECT_EQ(published[0].load(), 2u);
  EXPECT_EQ(published[1].load(), 1u);
  pool.Release(blocks[1]);
}

TEST(KvBlockPoolDeathTest, MisuseIsCaught) {
  EXPECT_DEATH(
      {
        KvBlockPool pool(1);
        pool.Release(KvBlockId{0});
      },
      "block 0 is free");
  EXPECT_DEATH(
      {
        KvBlockPool pool(1);
        pool.Share(KvBlockId{1});
      },
      "no such block");
  EXPECT_DEATH(
      {
        KvBlockPool pool(1);
        std::vector<KvBlockId> blocks(1);
        pool.AllocateReserved(absl::MakeSpan(blocks));
      },
      "more than was reserved");
  EXPECT_DEATH({ KvBlockPool pool(2); Take(pool, 1); }, "1 KV blocks leaked");
  EXPECT_DEATH({ KvBlockPool pool(2); CHECK_OK(pool.Reserve(2)); }, "2 reserved KV blocks leaked");
}

// The pool beside a model of it: a map from held block to count.
TEST(KvBlockPool, RandomWalkAgreesWithAModel) {
  constexpr uint32_t kBlocks = 37;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
    KvBlockPool pool(kBlocks);
    std::map<KvBlockId, uint32_t> held;
    uint32_t reserved = 0;
    const auto available = [&] {
      return kBlocks - static_cast<uint32_t>(held.size()) - reserved;
    };
    const auto any_held = [&] { return std::next(held.begin(), below(held.size()))->first; };
    const auto take = [&](const std::vector<KvBlockId>& blocks) {
      for (const KvBlockId block : blocks) {
        ASSERT_TRUE(held.emplace(block, 1).second) << "a held block was handed out";
      }
    };
    for (int step = 0; step < 2000; ++step) {
      const uint32_t n = below(8);
      std::vector<KvBlockId> blocks(n);
      switch (below(6)) {
        case 0: {
          const bool fits = n <= available();
          ASSERT_EQ(pool.Reserve(n).ok(), fits);
          if (fits) reserved += n;
          break;
        }
        case 1:
          pool.Unreserve(std::min(n, reserved));
          reserved -= std::min(n, reserved);
          break;
        case 2: {
          const bool fits = n <= available();
          ASSERT_EQ(pool.Allocate(absl::MakeSpan(blocks)).ok(), fits);
          if (fits) take(blocks);
          break;
        }
        case 3:
          blocks.resize(std::min(n, reserved));
          pool.AllocateReserved(absl::MakeSpan(blocks));
          reserved -= static_cast<uint32_t>(blocks.size());
          take(blocks);
          break;
        case 4:
          if (held.empty()) break;
          blocks = {any_held()};
          pool.Share(blocks[0]);
          ++held[blocks[0]];
          break;
        case 5:
          for (uint32_t i = 0; i < n && !held.empty(); ++i) {
            const KvBlockId block = any_held();
            pool.Release(block);
            if (--held[block] == 0) held.erase(block);
          }
          break;
      }
      const KvPoolCounts counts = pool.counts();
      ASSERT_EQ(counts.held, held.size()) << "at step " << step;
      ASSERT_EQ(counts.reserved, reserved) << "at step " << step;
      ASSERT_EQ(counts.free + counts.held, kBlocks) << "at step " << step;
      ASSERT_LE(counts.reserved, counts.free) << "at step " << step;
      for (const auto& [block, count] : held) ASSERT_EQ(pool.ref_count(block), count);
    }
    for (const auto& [block, count] : held) {
      for (uint32_t i = 0; i < count; ++i) pool.Release(block);
    }
    pool.Unreserve(reserved);
  }
}

}  // namespace
}  // namespace baton::kvstore
