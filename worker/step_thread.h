// The thread on which an engine steps: takes turns while there is work, sleeps while there is none.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace baton::worker {

// Thread-safe.
class StepThread {
 public:
  // Does one turn's work; says how long to sleep then if nobody calls Wake(). Zero or less: not at all.
  using Turn = std::function<absl::Duration()>;

  StepThread() = default;
  ~StepThread();
  StepThread(const StepThread&) = delete;
  StepThread& operator=(const StepThread&) = delete;

  // `name`: as `top -H` shows it, at most 15 characters. Call once.
  void Start(const std::string& name, Turn turn);
  void Wake();
  // Lets the current turn end and joins. Idempotent.
  void Stop();

 private:
  void Run(const Turn& turn);
  // False: stop.
  bool Sleep(absl::Duration at_most);

  base::Mutex mutex_;
  base::CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::worker
