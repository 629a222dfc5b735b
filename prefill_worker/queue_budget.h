// How many prompts, and tokens of prompts, may be here before their first token. Thread-safe; no call blocks.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace baton::prefill_worker {

struct QueueSize {
  uint32_t requests = 0;
  uint64_t tokens = 0;
};

class QueueBudget {
 public:
  explicit QueueBudget(const QueueSize& max) : max_(max) {}

  // RESOURCE_EXHAUSTED, with the numbers. One prompt fits an empty queue however long it is.
  absl::Status Enter(uint32_t tokens);
  // The runner knows these now and counts them itself.
  void HandToRunner(const QueueSize& taken);
  void Leave(uint32_t tokens);

  QueueSize size() const;
  // Of these: the runner does not know them yet.
  QueueSize before_runner() const;

 private:
  const QueueSize max_;
  mutable base::Mutex mutex_;
  QueueSize size_ ABSL_GUARDED_BY(mutex_);
  QueueSize before_runner_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::prefill_worker
