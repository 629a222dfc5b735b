#include "worker/step_thread.h"

#include <pthread.h>

#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"

namespace baton::worker {

StepThread::~StepThread() { Stop(); }

void StepThread::Start(const std::string& name, Turn turn) {
  CHECK(!thread_.joinable());
  thread_ = std::thread([this, turn = std::move(turn)] { Run(turn); });
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

void StepThread::Wake() {
  {
    base::MutexLock lock(mutex_);
    woken_ = true;
  }
  changed_.NotifyOne();
}

void StepThread::Stop() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void StepThread::Run(const Turn& turn) {
  while (Sleep(turn())) {
  }
}

bool StepThread::Sleep(absl::Duration at_most) {
  base::MutexLock lock(mutex_);
  const absl::Time until = absl::Now() + at_most;
  while (!stopping_ && !woken_) {
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mutex_, left);
  }
  woken_ = false;
  return !stopping_;
}

}  // namespace baton::worker
