#include "kvstore/transfer/loopback_transport.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton::kvstore {

// Shared by the registry and its readers, each of which may outlive the other.
class LoopbackRegistry::Source {
 public:
  Source(KvBlockPool& pool, const kernels::PagedKvView& view) : pool_(pool), view_(view) {}

  bool BeginRead() {
    base::MutexLock lock(mutex_);
    if (withdrawn_) return false;
    ++readers_;
    return true;
  }

  void EndRead() {
    base::MutexLock lock(mutex_);
    if (--readers_ == 0) no_reader_.NotifyAll();
  }

  void Withdraw() {
    base::MutexLock lock(mutex_);
    withdrawn_ = true;
    while (readers_ > 0) no_reader_.Wait(mutex_);
  }

  // REQUIRES: between BeginRead() and EndRead().
  absl::Status CopyBlock(const KvBlockRef& block, uint32_t layer, uint8_t* to) {
    if (!pool_.ShareIfCurrent(block)) {
      return absl::UnavailableError(absl::StrCat("block ", static_cast<uint32_t>(block.id),
                                                 " of the source has another owner by now"));
    }
    std::memcpy(to, view_.LayerBlock(layer, static_cast<uint32_t>(block.id)),
                view_.layout.layer_block_bytes());
    pool_.Release(block.id);
    return absl::OkStatus();
  }

 private:
  KvBlockPool& pool_;
  const kernels::PagedKvView view_;
  base::Mutex mutex_;
  base::CondVar no_reader_;
  bool withdrawn_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t readers_ ABSL_GUARDED_BY(mutex_) = 0;
};

class LoopbackRegistry::Reader final : public RangeReader {
 public:
  explicit Reader(std::shared_ptr<Source> source) : source_(std::move(source)) {}

  absl::Status Read(const AnnounceRange& range, const kernels::PagedKvView& into,
                    absl::Span<const KvBlockId> destination) override {
    CHECK_EQ(range.blocks.size(), destination.size());
    if (!source_->BeginRead()) return absl::UnavailableError("the prefill worker is gone");
    absl::Status status;
    for (size_t i = 0; i < destination.size() && status.ok(); ++i) {
      status = source_->CopyBlock(
          range.blocks[i], range.layer,
          into.LayerBlock(range.layer, static_cast<uint32_t>(destination[i])));
    }
    source_->EndRead();
    return status;
  }

 private:
  const std::shared_ptr<Source> source_;
};

void LoopbackRegistry::Publish(const base::Id128& incarnation, KvBlockPool& pool,
                               const kernels::PagedKvView& view) {
  base::MutexLock lock(mutex_);
  CHECK(sources_.emplace(incarnation, std::make_shared<Source>(pool, view)).second)
      << incarnation << " was published twice";
}

void LoopbackRegistry::Withdraw(const base::Id128& incarnation) {
  std::shared_ptr<Source> source;
  {
    base::MutexLock lock(mutex_);
    const auto at = sources_.find(incarnation);
    CHECK(at != sources_.end()) << incarnation << " was not published";
    source = std::move(at->second);
    sources_.erase(at);
  }
  source->Withdraw();
}

std::unique_ptr<RangeReader> LoopbackRegistry::Find(const base::Id128& incarnation) {
  base::MutexLock lock(mutex_);
  const auto at = sources_.find(incarnation);
  if (at == sources_.end()) return nullptr;
  return std::make_unique<Reader>(at->second);
}

}  // namespace baton::kvstore
