// Where other threads leave what an engine's step thread takes at its next turn, and the account of attempts that goes
// with it.
//
// Items are taken in the order they came: a request before its cancel, a cancel before the end of its hand-off. What is
// in it is bounded: per active attempt one of each kind, and active attempts are bounded by Enter().
// Thread-safe; no call but WaitUntilIdle() blocks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "worker/attempt_table.h"

namespace baton::worker {

template <typename Item>
class AttemptInbox {
 public:
  explicit AttemptInbox(size_t active_max) : active_max_(active_max) {}

  // The attempt becomes active and `item` is left. UNAVAILABLE: draining. RESOURCE_EXHAUSTED: as many are active as may
  // be. ALREADY_EXISTS, CANCELLED: as of AttemptTable::Begin().
  absl::Status Enter(const AttemptKey& key, const base::Id128& router, Item item) {
    base::MutexLock lock(mutex_);
    if (draining_) return absl::UnavailableError("the worker is draining");
    if (attempts_.active() >= active_max_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the worker has ", attempts_.active(), " requests, at most ", active_max_));
    }
    RETURN_IF_ERROR(attempts_.Begin(key, router));
    items_.push_back(std::move(item));
    return absl::OkStatus();
  }

  void Push(Item item) {
    base::MutexLock lock(mutex_);
    items_.push_back(std::move(item));
  }

  // Leaves `item` if this is the first cancel of an active attempt of `router`. False: it was not left.
  bool Cancel(const AttemptKey& key, const base::Id128& router, Item item) {
    base::MutexLock lock(mutex_);
    if (!attempts_.Cancel(key, router)) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // All items, in order; `items` is cleared first and gives its memory.
  void Take(std::vector<Item>& items) {
    items.clear();
    base::MutexLock lock(mutex_);
    items.swap(items_);
  }

  // An active attempt is over.
  void Leave(const AttemptKey& key) {
    base::MutexLock lock(mutex_);
    attempts_.End(key);
    if (attempts_.active() == 0) became_idle_.NotifyAll();
  }

  // From now on Enter() says UNAVAILABLE.
  void Drain() {
    base::MutexLock lock(mutex_);
    draining_ = true;
  }

  // Waits until no attempt is active. False: not within `timeout`.
  bool WaitUntilIdle(absl::Duration timeout) {
    const absl::Time until = absl::Now() + timeout;
    base::MutexLock lock(mutex_);
    while (attempts_.active() > 0) {
      const absl::Duration left = until - absl::Now();
      if (left <= absl::ZeroDuration()) return false;
      became_idle_.WaitFor(mutex_, left);
    }
    return true;
  }

  size_t active() const {
    base::MutexLock lock(mutex_);
    return attempts_.active();
  }

 private:
  const size_t active_max_;
  mutable base::Mutex mutex_;
  base::CondVar became_idle_;
  AttemptTable attempts_ ABSL_GUARDED_BY(mutex_);
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::worker
