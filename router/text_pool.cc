#include "router/text_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton::router {
namespace {

// What the shortest task weighs: a turn of a thread is not free.
constexpr int64_t kTaskBytesMin = 256;

}  // namespace

TextPool::TextPool(const Options& options) : options_(options) {
  CHECK(options.threads >= 1);
  for (uint32_t i = 0; i < options.threads; ++i) {
    threads_.push_back(std::make_unique<Thread>(absl::StrCat("text-", i)));
  }
}

TextPool::~TextPool() { Stop(); }

absl::Status TextPool::Submit(int64_t bytes, WorkLane::Task task) {
  const int64_t weight = std::max(bytes, kTaskBytesMin);
  const int64_t tasks = tasks_.fetch_add(1) + 1;
  const int64_t all_bytes = bytes_.fetch_add(weight) + weight;
  if (tasks > options_.tasks_max || all_bytes > options_.bytes_max) {
    Forget(weight);
    return absl::ResourceExhaustedError(absl::StrCat("the text pool is full: at most ",
                                                     options_.tasks_max, " prompts or ",
                                                     options_.bytes_max, " bytes may wait"));
  }
  Thread& thread = LeastLoaded();
  thread.bytes.fetch_add(weight);
  const bool posted = thread.lane.Post([this, &thread, weight, task = std::move(task)]() mutable {
    task();
    task = {};
    thread.bytes.fetch_sub(weight);
    Forget(weight);
  });
  if (posted) return absl::OkStatus();
  Forget(weight);
  return absl::UnavailableError("the router is going down");
}

void TextPool::Forget(int64_t weight) {
  bytes_.fetch_sub(weight);
  tasks_.fetch_sub(1);
}

void TextPool::Stop() {
  for (const auto& thread : threads_) thread->lane.Stop();
}

TextPool::Thread& TextPool::LeastLoaded() {
  return **std::min_element(threads_.begin(), threads_.end(), [](const auto& a, const auto& b) {
    return a->bytes.load(std::memory_order_relaxed) < b->bytes.load(std::memory_order_relaxed);
  });
}

}  // namespace baton::router
