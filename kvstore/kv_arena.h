// The bytes of a worker's KV blocks: one sealed memfd, mapped writable by its owner alone.
//
//   file = [ blocks: layout.block_bytes() * block_count ][ up to a page ][ generations: block_count * 8 bytes ]
//
// The generations are the pool's (give generations() to its constructor). A peer that copies a block compares the block's
// generation before and after with the one it was told, as in a seqlock, and so knows that the bytes are the ones meant.
//
// The descriptor may be handed to a peer on the same host, who can map it for reading only: after the owner's own mapping
// the file is sealed F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, so not even /proc reopens it for writing.
// Fresh memory is zero (kernels rely on finite values). Thread-compatible; writers of different blocks need no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/kv_layout.h"

namespace baton::kvstore {

// Where things lie in an arena's file.
struct KvArenaExtent {
  uint64_t block_bytes = 0;        // All blocks; they start at 0.
  uint64_t generations_begin = 0;  // Page-aligned.
  uint64_t file_bytes = 0;
};

// REQUIRES: `layout` is valid, 0 < block_count <= KvBlockPool::kBlockCountMax.
KvArenaExtent ExtentOf(const kernels::KvLayout& layout, uint32_t block_count);

class KvArena {
 public:
  // RESOURCE_EXHAUSTED when the memory cannot be had; INVALID_ARGUMENT for an illegal layout or block count.
  static absl::StatusOr<std::unique_ptr<KvArena>> Create(const kernels::KvLayout& layout,
                                                         uint32_t block_count);
  ~KvArena();
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  const kernels::PagedKvView& view() const { return view_; }
  uint64_t bytes() const { return extent_.block_bytes; }
  // One a block, zero at first, in memory that peers can read.
  absl::Span<std::atomic<uint64_t>> generations() const;
  int descriptor() const { return descriptor_; }  // Of the memfd; the arena keeps it.

 private:
  KvArena() = default;
  absl::Status MapAndSeal();

  kernels::PagedKvView view_;
  KvArenaExtent extent_;
  int descriptor_ = -1;
};

}  // namespace baton::kvstore
