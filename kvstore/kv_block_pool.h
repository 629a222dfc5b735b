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
// The pool deals in ids only; the bytes belong to KvArena. Thread-safe: the step thread, the hand-off threads and the
// admitting service all use it, and no call blocks.
#pragma once

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

  // REQUIRES: 0 < block_count <= kBlockCountMax.
  explicit KvBlockPool(uint32_t block_count);
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
  // Drops a reference; the last one frees the block. REQUIRES: the block is held.
  void Release(KvBlockId block);
  void Release(absl::Span<const KvBlockId> blocks);

  uint32_t ref_count(KvBlockId block) const;
  // Seqlock-style: a reader that copied the block's bytes compares the generation before and after.
  uint64_t generation(KvBlockId block) const;
  KvPoolCounts counts() const;

 private:
  mutable base::Mutex mutex_;
  std::vector<uint32_t> ref_counts_ ABSL_GUARDED_BY(mutex_);     // Indexed by block; 0: free.
  std::vector<uint64_t> generations_ ABSL_GUARDED_BY(mutex_);    // Indexed by block; odd: held.
  std::vector<KvBlockId> free_ ABSL_GUARDED_BY(mutex_);          // A stack: last freed, first reused.
  uint32_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::kvstore
