#include "kvstore/kv_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "kvstore/kv_block_pool.h"

namespace baton::kvstore {
namespace {

constexpr kernels::KvLayout kLayout = {.layers = 3, .kv_heads = 2, .head_dim = 16, .block_tokens = 8};

std::unique_ptr<KvArena> MakeArena(uint32_t blocks = 5) {
  absl::StatusOr<std::unique_ptr<KvArena>> arena = KvArena::Create(kLayout, blocks);
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

TEST(KvArena, IsZeroAndAligned) {
  const auto arena = MakeArena();
  EXPECT_EQ(arena->bytes(), 5 * kLayout.block_bytes());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->view().base) % 64, 0u);
  for (uint64_t i = 0; i < arena->bytes(); ++i) ASSERT_EQ(arena->view().base[i], 0) << "at " << i;
  EXPECT_EQ(arena->generations().size(), 5u);
  for (const auto& generation : arena->generations()) EXPECT_EQ(generation.load(), 0u);
}

TEST(KvArena, PeerReadsBlocksAndGenerationsThroughTheDescriptor) {
  const auto arena = MakeArena();
  KvBlockPool pool(5, arena->generations());
  std::vector<KvBlockId> block(1);
  ASSERT_TRUE(pool.Allocate(absl::MakeSpan(block)).ok());
  memset(arena->view().LayerBlock(2, 0), 0x5a, kLayout.layer_block_bytes());

  const KvArenaExtent extent = ExtentOf(kLayout, 5);
  void* mapped = mmap(nullptr, extent.file_bytes, PROT_READ, MAP_SHARED, arena->descriptor(), 0);
  ASSERT_NE(mapped, MAP_FAILED) << strerror(errno);
  const auto* peer = static_cast<const uint8_t*>(mapped);
  EXPECT_EQ(peer[2 * 5 * kLayout.layer_block_bytes()], 0x5a);
  uint64_t generation;
  memcpy(&generation, peer + extent.generations_begin, sizeof generation);
  EXPECT_EQ(generation, pool.generation(block[0]));
  munmap(mapped, extent.file_bytes);
  pool.Release(block);
}

// The property that the whole hand-off leans on: nobody but the owner can ever write.
TEST(KvArena, NobodyElseCanMapItWritable) {
  const auto arena = MakeArena();
  const uint64_t bytes = ExtentOf(kLayout, 5).file_bytes;
  EXPECT_EQ(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->descriptor(), 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(pwrite(arena->descriptor(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);

  const std::string path = "/proc/self/fd/" + std::to_string(arena->descriptor());
  const int reopened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(reopened, 0) << strerror(errno);
  EXPECT_EQ(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, reopened, 0), MAP_FAILED);

  void* read_only = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, reopened, 0);
  ASSERT_NE(read_only, MAP_FAILED) << strerror(errno);
  EXPECT_NE(mprotect(read_only, bytes, PROT_READ | PROT_WRITE), 0);
  munmap(read_only, bytes);
  close(reopened);

  arena->view().base[0] = 1;  // The owner still writes.
  EXPECT_EQ(arena->view().base[0], 1);
}

TEST(KvArena, KeepsItsSizeAndSeals) {
  const auto arena = MakeArena();
  EXPECT_NE(ftruncate(arena->descriptor(), 0), 0);
  EXPECT_NE(ftruncate(arena->descriptor(), 1 << 24), 0);
  EXPECT_EQ(fcntl(arena->descriptor(), F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  EXPECT_NE(fcntl(arena->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(KvArena, RefusesWhatCannotBe) {
  kernels::KvLayout odd = kLayout;
  odd.head_dim = 15;
  EXPECT_EQ(KvArena::Create(odd, 5).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvArena::Create(kLayout, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvArena::Create(kLayout, KvBlockPool::kBlockCountMax + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  const kernels::KvLayout huge = {
      .layers = 1024, .kv_heads = 1024, .head_dim = 1024, .block_tokens = 128};
  EXPECT_EQ(KvArena::Create(huge, 1 << 20).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton::kvstore
