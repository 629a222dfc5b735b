#include "kvstore/kv_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kvstore/kv_block_pool.h"

namespace baton::kvstore {
namespace {

// Of x86-64 and of the arm64 kernels in use; a multiple of any smaller one.
constexpr uint64_t kPageBytes = 64 << 10;

absl::Status Failed(const char* call, uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a KV arena of ", bytes, " bytes: ", call, ": ", strerror(errno)));
}

// A file can be larger than memory, and the first steps would succeed.
absl::Status CheckFitsMemory(uint64_t bytes) {
  const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes <= memory) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a KV arena of ", bytes,
                                                   " bytes, this machine has ", memory));
}

}  // namespace

KvArenaExtent ExtentOf(const kernels::KvLayout& layout, uint32_t block_count) {
  // At most 2^40 bytes a block (kv_layout.h) times 2^22 blocks: no overflow.
  KvArenaExtent extent;
  extent.block_bytes = layout.block_bytes() * block_count;
  extent.generations_begin = (extent.block_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  extent.file_bytes = extent.generations_begin + sizeof(uint64_t) * block_count;
  return extent;
}

absl::StatusOr<std::unique_ptr<KvArena>> KvArena::Create(const kernels::KvLayout& layout,
                                                         uint32_t block_count) {
  RETURN_IF_ERROR(Validate(layout));
  if (block_count == 0 || block_count > KvBlockPool::kBlockCountMax) {
    return absl::InvalidArgumentError(absl::StrCat("block_count is ", block_count, ", must be in [1, ",
                                                   KvBlockPool::kBlockCountMax, "]"));
  }
  std::unique_ptr<KvArena> arena(new KvArena);
  arena->view_ = {.layout = layout, .block_count = block_count};
  arena->extent_ = ExtentOf(layout, block_count);
  RETURN_IF_ERROR(CheckFitsMemory(arena->extent_.file_bytes));
  RETURN_IF_ERROR(arena->MapAndSeal());
  return arena;
}

absl::Status KvArena::MapAndSeal() {
  const uint64_t bytes = extent_.file_bytes;
  descriptor_ = memfd_create("baton-kv-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor_ < 0) return Failed("memfd_create", bytes);
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) return Failed("ftruncate", bytes);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (base == MAP_FAILED) return Failed("mmap", bytes);
  view_.base = static_cast<uint8_t*>(base);
  // Only advice: kernels without huge pages for shared memory refuse it.
  madvise(base, bytes, MADV_HUGEPAGE);
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fcntl(descriptor_, F_ADD_SEALS, kSeals) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("this kernel cannot seal a KV arena: ", strerror(errno)));
  }
  return absl::OkStatus();
}

KvArena::~KvArena() {
  if (view_.base != nullptr) CHECK(munmap(view_.base, extent_.file_bytes) == 0);
  if (descriptor_ >= 0) CHECK(close(descriptor_) == 0);
}

absl::Span<std::atomic<uint64_t>> KvArena::generations() const {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  return {reinterpret_cast<std::atomic<uint64_t>*>(view_.base + extent_.generations_begin),
          view_.block_count};
}

}  // namespace baton::kvstore
