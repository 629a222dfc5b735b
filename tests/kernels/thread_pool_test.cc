#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "kernels/kernel_context.h"

namespace baton::kernels {
namespace {

TEST(TileQueue, HandsOutEachTileOnce) {
  for (uint32_t threads : {1u, 2u, 3u, 16u, 40u}) {
    for (uint32_t count : {0u, 1u, 2u, 15u, 100u}) {
      TileQueue tiles(count, threads);
      std::vector<int> claimed(count);
      for (uint32_t tile; tiles.Claim(threads - 1, tile);) ++claimed[tile];
      EXPECT_EQ(claimed, std::vector<int>(count, 1))
          << threads << " threads, " << count << " tiles";
    }
  }
}

TEST(TileQueue, StartsEachThreadInItsOwnRange) {
  TileQueue tiles(100, 2);
  uint32_t first = 0, second = 0;
  ASSERT_TRUE(tiles.Claim(0, first));
  ASSERT_TRUE(tiles.Claim(1, second));
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, 50u);
}

class ThreadPoolTest : public testing::TestWithParam<uint32_t> {};

TEST_P(ThreadPoolTest, RunsEachTileOnceInEachRegion) {
  KernelContext context(GetParam());
  constexpr uint32_t kTiles = 97;
  std::vector<std::atomic<uint32_t>> runs(kTiles);
  constexpr uint32_t kRegions = 2000;
  for (uint32_t region = 0; region < kRegions; ++region) {
    context.ForEachTile(kTiles, [&](uint32_t tile, uint32_t thread) {
      ASSERT_LT(thread, context.threads());
      runs[tile].fetch_add(1, std::memory_order_relaxed);
    });
    ASSERT_EQ(runs[region % kTiles].load(), region + 1);
  }
  for (const auto& count : runs) EXPECT_EQ(count.load(), kRegions);
}

// What a region wrote is there for the caller, and for the next region's workers.
TEST_P(ThreadPoolTest, RegionsAreOrdered) {
  KernelContext context(GetParam());
  std::vector<uint64_t> values(64, 1);
  for (int region = 0; region < 30; ++region) {
    std::vector<uint64_t> next(values.size());
    context.ForEachTile(values.size(),
                        [&](uint32_t i, uint32_t) { next[i] = values[i] + values[(i + 1) % 64]; });
    values = next;
  }
  EXPECT_EQ(values, std::vector<uint64_t>(64, uint64_t{1} << 30));
}

TEST_P(ThreadPoolTest, WorkersThatParkedComeBack) {
  KernelContext context(GetParam());
  std::atomic<uint32_t> sum{0};
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // Longer than they spin.
    context.ForEachTile(50, [&](uint32_t tile, uint32_t) { sum += tile; });
  }
  EXPECT_EQ(sum.load(), 3u * 49 * 50 / 2);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

// More runnable threads than cores: nobody waits for a worker that does not get to run.
TEST(ThreadPool, ManyPoolsShareTheMachine) {
  std::vector<std::thread> owners;
  std::atomic<uint64_t> total{0};
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([&] {
      KernelContext context(4);
      for (int region = 0; region < 500; ++region) {
        context.ForEachTile(16, [&](uint32_t tile, uint32_t) { total += tile; });
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(total.load(), 4u * 500 * 120);
}

TEST(ThreadPoolDeathTest, RefusesARegionInsideARegion) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.Run([&](uint32_t thread) {
          if (thread == 0) pool.Run([](uint32_t) {});
        });
      },
      "inside a region");
}

TEST(KernelContext, ScratchIsAlignedAndGrows) {
  KernelContext context(2);
  uint8_t* small = context.Scratch(0, 100);
  small[99] = 1;
  uint8_t* other = context.Scratch(1, 100);
  EXPECT_NE(small, other);
  uint8_t* large = context.Scratch(0, 5 << 20);
  large[(5 << 20) - 1] = 1;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 64, 0u);
}

}  // namespace
}  // namespace baton::kernels
