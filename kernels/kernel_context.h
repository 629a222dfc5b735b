// What every op is given besides its arguments: the threads it may use and scratch memory for each
// of them.
//
// One context per model; owned by it. One op at a time runs on a context.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/thread_pool.h"

namespace baton::kernels {

class KernelContext {
 public:
  // REQUIRES: 1 <= threads <= ThreadPool::kThreadsMax.
  explicit KernelContext(uint32_t threads) : pool_(threads), scratch_(threads) {}

  ThreadPool& pool() { return pool_; }
  uint32_t threads() const { return pool_.threads(); }

  // At least `bytes` of 64-byte aligned memory with undefined content, good until the next call for
  // the same thread. Inside a region each thread asks for its own.
  uint8_t* Scratch(uint32_t thread, size_t bytes) {
    Slot& slot = scratch_[thread];
    if (slot.buffer.size() < bytes) slot.buffer = Buffer(std::max(bytes, kScratchBytesMin));
    return slot.buffer.data();
  }

  // Runs work(tile, thread) for each tile in [0, count), each once, on all threads. Few tiles run
  // on the caller alone.
  template <typename Work>
  void ForEachTile(uint32_t count, Work work) {
    if (count <= 1) {
      if (count == 1) work(0u, 0u);
      return;
    }
    TileQueue tiles(count, threads());
    pool_.Run([&](uint32_t thread) {
      for (uint32_t tile = 0; tiles.Claim(thread, tile);) work(tile, thread);
    });
  }

 private:
  static constexpr size_t kScratchBytesMin = size_t{256} << 10;
  struct alignas(64) Slot {
    Buffer buffer;
  };

  ThreadPool pool_;
  std::vector<Slot> scratch_;
};

}  // namespace baton::kernels
