// The bytes of a worker's KV blocks: one sealed memfd, mapped writable by its owner alone.
//
// The descriptor may be handed to a peer on the same host, who can map it for reading only: after the owner's own mapping
// the file is sealed F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, so not even /proc reopens it for writing.
// Fresh memory is zero (kernels rely on finite values). Thread-compatible; writers of different blocks need no lock.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/kv_layout.h"

namespace baton::kvstore {

class KvArena {
 public:
  // RESOURCE_EXHAUSTED when the memory cannot be had; INVALID_ARGUMENT for an illegal layout or block count.
  static absl::StatusOr<std::unique_ptr<KvArena>> Create(const kernels::KvLayout& layout,
                                                         uint32_t block_count);
  ~KvArena();
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  const kernels::PagedKvView& view() const { return view_; }
  uint64_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }  // Of the memfd; the arena keeps it.

 private:
  KvArena() = default;
  kernels::PagedKvView view_;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace baton::kvstore
