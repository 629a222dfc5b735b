// Fixed threads that turn prompts into tokens: templates, tokenizer, and the Tokenize and
// Detokenize calls. Never a thread of gRPC, never a thread that relays tokens, so that a long
// prompt delays neither.
//
// Bounded in tasks and in bytes. Each thread has its own queue; a task goes to the one with the
// fewest bytes ahead, so that a short prompt does not wait behind a long one while another thread
// is free.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "router/work_lane.h"

namespace baton::router {

class TextPool {
 public:
  struct Options {
    uint32_t threads = 2;
    int64_t tasks_max = 4096;
    int64_t bytes_max = 256 << 20;
  };

  explicit TextPool(const Options& options);
  ~TextPool();

  // Any thread. `bytes`: what the task holds and will work through. RESOURCE_EXHAUSTED beyond the
  // bounds, UNAVAILABLE after Stop().
  absl::Status Submit(int64_t bytes, WorkLane::Task task);

  // Runs what was submitted, then ends the threads.
  void Stop();

  int64_t tasks() const { return tasks_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Thread {
    explicit Thread(const std::string& name) : lane(name) {}
    std::atomic<int64_t> bytes{0};
    WorkLane lane;
  };

  Thread& LeastLoaded();
  void Forget(int64_t weight);

  const Options options_;
  std::atomic<int64_t> tasks_{0};
  std::atomic<int64_t> bytes_{0};
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace baton::router
