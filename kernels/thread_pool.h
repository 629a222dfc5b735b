// A fork/join pool for regions of a few microseconds: workers spin for a short while between
// regions and then park.
//
//   Run(work):  open ──► work(0) on the caller, work(t) on workers that arrive ──► close ──► join
//
// Nobody waits for a worker to *arrive*: on a machine with more runnable threads than cores a
// worker may come late or never, so `work` must claim its pieces from a shared counter (TileQueue)
// and finish the region even if only the caller runs it. A late worker thus delays at most the one
// tile it holds. Within a region results must not depend on who computes what.
//
// Threads: Run() from one thread at a time, never from inside a region.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton::kernels {

class ThreadPool {
 public:
  static constexpr uint32_t kThreadsMax = 256;

  // The caller of Run() is thread 0, so threads - 1 are started.
  // REQUIRES: 1 <= threads <= kThreadsMax.
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return threads_; }

  // Calls work(0) here and work(t) on workers that arrive; returns when all of them have returned.
  void Run(absl::FunctionRef<void(uint32_t thread)> work);

 private:
  void WorkerLoop(uint32_t thread);
  // Returns once a region other than `seen` is open and entered, or false to stop.
  bool Enter(uint32_t& seen);
  void Leave();

  const uint32_t threads_;

  // Region number, open bit and number of workers inside; see the .cc. It is the word that everyone
  // waits on. What a worker needs next lies in the same cache line: each line fetched from another
  // core costs 0.1 us of a region.
  alignas(64) std::atomic<uint32_t> state_{0};
  std::optional<absl::FunctionRef<void(uint32_t)>> work_;  // Read only between Enter() and Leave().
  alignas(64) std::atomic<uint32_t> parked_workers_{0};
  std::atomic<bool> caller_parked_{false};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// Hands out tiles [0, count) of one region. Each thread has a home range, so that it streams
// through neighbouring weights, and takes from the others' ranges when its own is done.
//
//   TileQueue tiles(count, pool.threads());
//   pool.Run([&](uint32_t thread) {
//     for (uint32_t tile; tiles.Claim(thread, tile);) …
//   });
class TileQueue {
 public:
  TileQueue(uint32_t tile_count, uint32_t threads);

  // False when no tile is left. Each tile is handed out exactly once.
  bool Claim(uint32_t thread, uint32_t& tile);

 private:
  struct alignas(64) Range {
    std::atomic<uint32_t> next{0};
    uint32_t end = 0;
  };
  static constexpr uint32_t kRangesMax = 16;  // More threads share ranges.

  uint32_t range_count_;
  Range ranges_[kRangesMax];
};

}  // namespace baton::kernels
