#include "router/answer_buffers.h"

#include <utility>

namespace baton::router {

void AnswerBuffers::Open(std::shared_ptr<BufferedStream> stream) {
  base::MutexLock lock(mutex_);
  const BufferedStream* const key = stream.get();
  streams_.emplace(key, std::move(stream));
}

void AnswerBuffers::Close(const BufferedStream& stream) {
  std::shared_ptr<BufferedStream> last;  // Let go of outside the lock.
  base::MutexLock lock(mutex_);
  const auto found = streams_.find(&stream);
  if (found == streams_.end()) return;
  last = std::move(found->second);
  streams_.erase(found);
}

void AnswerBuffers::Add(int64_t bytes) {
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  while (bytes > 0 && bytes_.load(std::memory_order_relaxed) > bytes_max_) {
    const std::shared_ptr<BufferedStream> largest = Largest();
    if (largest == nullptr) return;
    largest->CutOff();
  }
}

std::shared_ptr<BufferedStream> AnswerBuffers::Largest() {
  base::MutexLock lock(mutex_);
  std::shared_ptr<BufferedStream> largest;
  int64_t most = 0;
  for (const auto& [key, stream] : streams_) {
    const int64_t bytes = stream->buffered_bytes();
    if (bytes <= most) continue;
    most = bytes;
    largest = stream;
  }
  return largest;
}

}  // namespace baton::router
