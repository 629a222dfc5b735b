// A fixed pool of KV blocks, shared by reference count.
//
//              Allocate()                 Share()
//    free ─────────────────► held (1) ─────────────► held (n)
//      ▲                       │  ▲                     │
//      └───────────────────────┘  └─────────────────────┘
//            Release(), n = 0         Release(), n > 0
//
// Reservations are counts, not blocks: Reserve() promises that so many Allocate()s from the reservation cannot fail.
// free blocks >= reserved blocks always holds; that is the admission ledger of a decode worker.
//
// The pool deals in ids only; the bytes belong to KvArena, which may lend it a table of generations: the pool writes each
// change there, for readers in other processes (see KvArena). Thread-safe: the step thread, the hand-off threads and the
// admitting service all use it, and no call blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"

namespace baton::kvstore {

// Index of a block within one worker's pool; meaningless on any other worker.
enum class KvBlockId : uint32_t {};

// A block and who owns it now: the generation grows each time the block is allocated or freed.
struct KvBlockRef {
  KvBlockId id;
  uint64_t generation;

  bool operator==(const KvBlockRef&) const = default;
};

struct KvPoolCounts {
  uint32_t total = 0;
  uint32_t free = 0;      // Reserved ones included.
  uint32_t reserved = 0;  // Promised, not allocated.
  uint32_t held = 0;
};

class KvBlockPool {
 public:
  static constexpr uint32_t kBlockCountMax = 1u << 22;

  // REQUIRES: 0 < block_count <= kBlockCountMax; `published` is empty or has block_count entries and outlives the pool.
  explicit KvBlockPool(uint32_t block_count, absl::Span<std::atomic<uint64_t>> published = {});
  // CHECKs that every block and every reservation came back: a leak at shutdown is a bug.
  ~KvBlockPool();
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

  // Promises `blocks` blocks. RESOURCE_EXHAUSTED (with both numbers) when fewer are free and unreserved.
  absl::Status Reserve(uint32_t blocks);
  // Gives back what was promised and not taken. REQUIRES: at least `blocks` are reserved.
  void Unreserve(uint32_t blocks);

  // Fills `blocks` with ids holding one reference each, all of them or none.
  // RESOURCE_EXHAUSTED when too few are free and unreserved.
  absl::Status Allocate(absl::Span<KvBlockId> blocks);
  // The same out of a reservation, which it consumes. REQUIRES: as many are reserved by the caller.
  void AllocateReserved(absl::Span<KvBlockId> blocks);

  // Adds a reference. REQUIRES: the block is held.
  void Share(KvBlockId block);
  // Adds a reference if the block still has the owner it had at `ref`; false: it was freed since, or `ref` names no block.
  [[nodiscard]] bool ShareIfCurrent(KvBlockRef ref);
  // Drops a reference; the last one frees the block. REQUIRES: the block is held.
  void Release(KvBlockId block);
  void Release(absl::Span<const KvBlockId> blocks);

  uint32_t ref_count(KvBlockId block) const;
  // Seqlock-style: a reader that copied the block's bytes compares the generation before and after.
  uint64_t generation(KvBlockId block) const;
  KvPoolCounts counts() const;

 private:
  void TakeFree(absl::Span<KvBlockId> blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseOne(KvBlockId block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NextGeneration(uint32_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The block's index. REQUIRES: the block exists and is held.
  uint32_t HeldIndex(KvBlockId block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::vector<uint32_t> ref_counts_ ABSL_GUARDED_BY(mutex_);   // Indexed by block; 0: free.
  std::vector<uint64_t> generations_ ABSL_GUARDED_BY(mutex_);  // Indexed by block; odd: held.
  std::vector<KvBlockId> free_ ABSL_GUARDED_BY(mutex_);        // A stack: last freed, first reused.
  uint32_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
  const absl::Span<std::atomic<uint64_t>> published_;
};

}  // namespace baton::kvstore
