#include "router/work_lane.h"

#include <pthread.h>

#include <utility>

#include "absl/time/clock.h"

namespace baton::router {

WorkLane::WorkLane(const std::string& name, Task on_alarm) : on_alarm_(std::move(on_alarm)) {
  thread_ = std::thread([this, name] { Run(name); });
}

WorkLane::~WorkLane() { Stop(); }

bool WorkLane::Post(Task task) {
  base::MutexLock lock(mutex_);
  if (stopping_) return false;
  backlog_.fetch_add(1, std::memory_order_relaxed);
  tasks_.push_back(std::move(task));
  if (waiting_) wake_.NotifyOne();
  return true;
}

void WorkLane::Stop() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkLane::Run(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  std::vector<Task> tasks;
  while (Wait(tasks)) {
    for (Task& task : tasks) {
      task();
      task = {};  // What it holds goes now, not when the whole batch is done.
      backlog_.fetch_sub(1, std::memory_order_relaxed);
    }
    tasks.clear();
    if (absl::Now() < alarm_) continue;
    alarm_ = absl::InfiniteFuture();
    if (on_alarm_) on_alarm_();
  }
}

bool WorkLane::Wait(std::vector<Task>& tasks) {
  base::MutexLock lock(mutex_);
  while (tasks_.empty() && !stopping_) {
    const absl::Time now = absl::Now();
    if (now >= alarm_) return true;
    waiting_ = true;
    wake_.WaitFor(mutex_, alarm_ - now);
    waiting_ = false;
  }
  if (tasks_.empty()) return false;
  tasks_.swap(tasks);
  return true;
}

}  // namespace baton::router
