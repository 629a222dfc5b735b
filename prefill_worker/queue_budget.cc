#include "prefill_worker/queue_budget.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton::prefill_worker {

absl::Status QueueBudget::Enter(uint32_t tokens) {
  base::MutexLock lock(mutex_);
  if (size_.requests >= max_.requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue holds ", size_.requests, " requests, at most ", max_.requests));
  }
  if (size_.requests > 0 && size_.tokens + tokens > max_.tokens) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue holds ", size_.tokens, " tokens; ",
                                                     tokens, " more would exceed ", max_.tokens));
  }
  ++size_.requests;
  size_.tokens += tokens;
  ++before_runner_.requests;
  before_runner_.tokens += tokens;
  return absl::OkStatus();
}

void QueueBudget::HandToRunner(const QueueSize& taken) {
  base::MutexLock lock(mutex_);
  CHECK_LE(taken.requests, before_runner_.requests);
  before_runner_.requests -= taken.requests;
  before_runner_.tokens -= taken.tokens;
}

void QueueBudget::Leave(uint32_t tokens) {
  base::MutexLock lock(mutex_);
  CHECK(size_.requests > 0);
  --size_.requests;
  size_.tokens -= tokens;
}

QueueSize QueueBudget::size() const {
  base::MutexLock lock(mutex_);
  return size_;
}

QueueSize QueueBudget::before_runner() const {
  base::MutexLock lock(mutex_);
  return before_runner_;
}

}  // namespace baton::prefill_worker
