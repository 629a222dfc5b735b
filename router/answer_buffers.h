// Bytes of answers that wait for slow clients, over all streams, under one bound.
//
// A slow client costs the workers nothing: its stream waits here, up to its own max_tokens. When
// all of them together pass the bound, the stream that holds the most is cut off. Any thread; a
// write costs one atomic addition, the lock is taken when a stream opens or closes, or the bound is
// passed.
#pragma once

#include <atomic>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"

namespace baton::router {

class BufferedStream {
 public:
  virtual ~BufferedStream() = default;
  virtual int64_t buffered_bytes() const = 0;
  // Give back what is buffered, now, and end the stream with RESOURCE_EXHAUSTED.
  virtual void CutOff() = 0;
};

class AnswerBuffers {
 public:
  explicit AnswerBuffers(int64_t bytes_max) : bytes_max_(bytes_max) {}

  void Open(std::shared_ptr<BufferedStream> stream);
  void Close(const BufferedStream& stream);

  // What a stream buffers grew, or shrank (negative). Cuts streams off while over the bound: call
  // without own locks.
  void Add(int64_t bytes);

  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<BufferedStream> Largest();

  const int64_t bytes_max_;
  std::atomic<int64_t> bytes_{0};
  base::Mutex mutex_;
  absl::flat_hash_map<const BufferedStream*, std::shared_ptr<BufferedStream>> streams_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
