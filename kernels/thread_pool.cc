#include "kernels/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

#include "base/check.h"

namespace baton::kernels {
namespace {

// state_ = region << 12 | open << 11 | workers inside. Region numbers wrap; a worker only asks "is
// it another one than the last I was in", and the cost of a wrong "no" is that it sits out one
// region.
constexpr uint32_t kInsideMask = (1u << 11) - 1;
constexpr uint32_t kOpen = 1u << 11;
constexpr uint32_t kRegion = 1u << 12;
static_assert(ThreadPool::kThreadsMax <= kInsideMask);

uint32_t RegionOf(uint32_t state) { return state & ~(kRegion - 1); }

// Long enough to span the gap between two regions of a step, short enough not to hurt another
// process that wants the core.
constexpr std::chrono::microseconds kSpin{60};
constexpr int kPausesPerClockRead = 16;

void Pause() { __builtin_ia32_pause(); }

// Spins until done() or the budget is spent; returns done().
template <typename Done>
bool SpinUntil(Done done) {
  // The first look is free of clock reads: most waits end within a microsecond.
  for (int i = 0; i < 4 * kPausesPerClockRead; ++i) {
    if (done()) return true;
    Pause();
  }
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ThreadPool::ThreadPool(uint32_t threads) : threads_(threads) {
  CHECK(threads >= 1 && threads <= kThreadsMax) << "threads is " << threads;
  workers_.reserve(threads - 1);
  for (uint32_t thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  state_.fetch_add(kRegion);  // A closed region, so that nobody sleeps on the old word.
  FutexWakeAll(state_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(absl::FunctionRef<void(uint32_t thread)> work) {
  if (threads_ == 1) {
    work(0);
    return;
  }
  const uint32_t before = state_.load(std::memory_order_relaxed);
  CHECK((before & (kOpen | kInsideMask)) == 0) << "ThreadPool::Run inside a region";
  work_.emplace(work);
  // Sequentially consistent, as is the parked count: either a worker about to park sees the region,
  // or we see it parked.
  state_.store(RegionOf(before) + kRegion + kOpen);
  if (parked_workers_.load() > 0) FutexWakeAll(state_);

  work(0);

  uint32_t state = state_.fetch_and(~kOpen) & ~kOpen;  // From here on nobody enters.
  const auto all_left = [&] {
    state = state_.load(std::memory_order_acquire);
    return (state & kInsideMask) == 0;
  };
  while ((state & kInsideMask) != 0 && !SpinUntil(all_left)) {
    caller_parked_.store(true);
    state = state_.load();
    if ((state & kInsideMask) != 0) FutexWait(state_, state);
    caller_parked_.store(false);
  }
}

void ThreadPool::WorkerLoop(uint32_t thread) {
  uint32_t seen = 0;
  while (Enter(seen)) {
    (*work_)(thread);
    Leave();
  }
}

bool ThreadPool::Enter(uint32_t& seen) {
  uint32_t state = 0;
  const auto changed = [&] {
    state = state_.load(std::memory_order_acquire);
    return ((state & kOpen) != 0 && RegionOf(state) != seen) ||
           stop_.load(std::memory_order_relaxed);
  };
  for (;;) {
    if (!SpinUntil(changed)) {
      parked_workers_.fetch_add(1);
      state = state_.load();
      const bool open = (state & kOpen) != 0 && RegionOf(state) != seen;
      if (!open && !stop_.load()) FutexWait(state_, state);
      parked_workers_.fetch_sub(1);
      continue;
    }
    if (stop_.load(std::memory_order_relaxed)) return false;
    if (state_.compare_exchange_strong(state, state + 1, std::memory_order_acquire)) {
      seen = RegionOf(state);
      return true;
    }
  }
}

void ThreadPool::Leave() {
  const uint32_t state = state_.fetch_sub(1) - 1;
  const bool last = (state & (kOpen | kInsideMask)) == 0;
  if (last && caller_parked_.load()) FutexWakeAll(state_);
}

TileQueue::TileQueue(uint32_t tile_count, uint32_t threads)
    : range_count_(std::min(threads, kRangesMax)) {
  for (uint32_t i = 0; i < range_count_; ++i) {
    ranges_[i].next.store(uint64_t{tile_count} * i / range_count_, std::memory_order_relaxed);
    ranges_[i].end = uint64_t{tile_count} * (i + 1) / range_count_;
  }
}

bool TileQueue::Claim(uint32_t thread, uint32_t& tile) {
  for (uint32_t i = 0; i < range_count_; ++i) {
    Range& range = ranges_[(thread + i) % range_count_];
    // The plain look first keeps `next` from running away past `end`, and off the bus.
    if (range.next.load(std::memory_order_relaxed) >= range.end) continue;
    tile = range.next.fetch_add(1, std::memory_order_relaxed);
    if (tile < range.end) return true;
  }
  return false;
}

}  // namespace baton::kernels
