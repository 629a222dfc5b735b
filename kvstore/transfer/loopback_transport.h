// Hand-off between two workers of one process: the sink copies straight out of the source's arena.
//
// The composition root makes one registry and gives it to both workers. A block is pinned in the source's pool while it
// is copied, so the copy never races with a new owner. Thread-safe.
#pragma once

#include <map>
#include <memory>

#include "base/id128.h"
#include "base/mutex.h"
#include "kernels/kv_layout.h"
#include "kvstore/kv_block_pool.h"
#include "kvstore/transfer/range_reader.h"

namespace baton::kvstore {

class LoopbackRegistry {
 public:
  // From now on `incarnation` can be read. `pool` and the memory of `view` stay until Withdraw() returned.
  void Publish(const base::Id128& incarnation, KvBlockPool& pool, const kernels::PagedKvView& view);
  // Waits for copies under way (a range each); later ones fail with UNAVAILABLE.
  void Withdraw(const base::Id128& incarnation);

  // Null: that incarnation is not in this process.
  std::unique_ptr<RangeReader> Find(const base::Id128& incarnation);

 private:
  class Source;
  class Reader;

  base::Mutex mutex_;
  std::map<base::Id128, std::shared_ptr<Source>> sources_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::kvstore
