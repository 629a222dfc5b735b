// One thread that runs tasks in the order they were posted, and owns whatever those tasks touch: an
// actor's mailbox.
//
// The router's text pool is made of lanes: some prepare prompts, others relay tokens. A request
// lives on one lane, so its events stay in order and its state needs no lock. Tasks must not block.
// The queue's length is bounded by what posts to it (requests, calls, step batches), each with a
// bound of its own.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace baton::router {

class WorkLane {
 public:
  using Task = absl::AnyInvocable<void()>;

  // `name` shows in debuggers; at most 15 bytes. `on_alarm` runs on the lane when the alarm is due;
  // may be empty.
  explicit WorkLane(const std::string& name, Task on_alarm = {});
  ~WorkLane();  // Stop().

  // Any thread. False after Stop(): `task` is destroyed without being run.
  bool Post(Task task);

  // From the lane's own thread: run `on_alarm` at `when` at the latest; InfiniteFuture: never. One
  // alarm at a time.
  void SetAlarm(absl::Time when) { alarm_ = when; }

  // Runs what was posted, then ends the thread. Idempotent; not from the lane's own thread.
  void Stop();

  // Tasks posted and not yet run.
  int64_t backlog() const { return backlog_.load(std::memory_order_relaxed); }

 private:
  void Run(const std::string& name);
  // Waits for tasks, the alarm or the end; false at the end.
  bool Wait(std::vector<Task>& tasks);

  Task on_alarm_;
  absl::Time alarm_ = absl::InfiniteFuture();  // Of the lane's thread only.
  std::atomic<int64_t> backlog_{0};
  base::Mutex mutex_;
  base::CondVar wake_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::router
