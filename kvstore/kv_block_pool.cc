#include "kvstore/kv_block_pool.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton::kvstore {

KvBlockPool::KvBlockPool(uint32_t block_count, absl::Span<std::atomic<uint64_t>> published)
    : ref_counts_(block_count, 0), generations_(block_count, 0), published_(published) {
  CHECK(block_count > 0 && block_count <= kBlockCountMax) << block_count << " blocks";
  CHECK(published.empty() || published.size() == block_count)
      << published.size() << " generations for " << block_count << " blocks";
  free_.reserve(block_count);
  // Block 0 is on top, so that a young pool hands out ascending blocks, which lie side by side.
  for (uint32_t block = block_count; block-- > 0;) free_.push_back(KvBlockId{block});
}

KvBlockPool::~KvBlockPool() {
  const KvPoolCounts at_end = counts();
  CHECK(at_end.held == 0) << at_end.held << " KV blocks leaked";
  CHECK(at_end.reserved == 0) << at_end.reserved << " reserved KV blocks leaked";
}

absl::Status KvBlockPool::Reserve(uint32_t blocks) {
  base::MutexLock lock(mutex_);
  const uint32_t available = static_cast<uint32_t>(free_.size()) - reserved_;
  if (blocks > available) {
    return absl::ResourceExhaustedError(
        absl::StrCat("need ", blocks, " KV blocks, ", available, " free and unreserved"));
  }
  reserved_ += blocks;
  return absl::OkStatus();
}

void KvBlockPool::Unreserve(uint32_t blocks) {
  base::MutexLock lock(mutex_);
  CHECK_LE(blocks, reserved_) << "unreserving what was never reserved";
  reserved_ -= blocks;
}

absl::Status KvBlockPool::Allocate(absl::Span<KvBlockId> blocks) {
  base::MutexLock lock(mutex_);
  const size_t available = free_.size() - reserved_;
  if (blocks.size() > available) {
    return absl::ResourceExhaustedError(
        absl::StrCat("need ", blocks.size(), " KV blocks, ", available, " free and unreserved"));
  }
  TakeFree(blocks);
  return absl::OkStatus();
}

void KvBlockPool::AllocateReserved(absl::Span<KvBlockId> blocks) {
  base::MutexLock lock(mutex_);
  CHECK_LE(blocks.size(), reserved_) << "allocating more than was reserved";
  reserved_ -= static_cast<uint32_t>(blocks.size());
  TakeFree(blocks);
}

void KvBlockPool::Share(KvBlockId block) {
  base::MutexLock lock(mutex_);
  ++ref_counts_[HeldIndex(block)];
}

bool KvBlockPool::ShareIfCurrent(KvBlockRef ref) {
  base::MutexLock lock(mutex_);
  const auto index = static_cast<uint32_t>(ref.id);
  if (index >= ref_counts_.size()) return false;
  if (ref_counts_[index] == 0 || generations_[index] != ref.generation) return false;
  ++ref_counts_[index];
  return true;
}

void KvBlockPool::Release(KvBlockId block) {
  base::MutexLock lock(mutex_);
  ReleaseOne(block);
}

void KvBlockPool::Release(absl::Span<const KvBlockId> blocks) {
  base::MutexLock lock(mutex_);
  for (const KvBlockId block : blocks) ReleaseOne(block);
}

uint32_t KvBlockPool::ref_count(KvBlockId block) const {
  base::MutexLock lock(mutex_);
  const auto index = static_cast<uint32_t>(block);
  CHECK_LT(index, ref_counts_.size()) << "no such block";
  return ref_counts_[index];
}

uint64_t KvBlockPool::generation(KvBlockId block) const {
  base::MutexLock lock(mutex_);
  const auto index = static_cast<uint32_t>(block);
  CHECK_LT(index, generations_.size()) << "no such block";
  return generations_[index];
}

KvPoolCounts KvBlockPool::counts() const {
  base::MutexLock lock(mutex_);
  const auto total = static_cast<uint32_t>(ref_counts_.size());
  const auto free = static_cast<uint32_t>(free_.size());
  return {.total = total, .free = free, .reserved = reserved_, .held = total - free};
}

void KvBlockPool::TakeFree(absl::Span<KvBlockId> blocks) {
  CHECK_LE(blocks.size(), free_.size()) << "a promised KV block is missing";
  for (KvBlockId& block : blocks) {
    block = free_.back();
    free_.pop_back();
    const auto index = static_cast<uint32_t>(block);
    CHECK(ref_counts_[index] == 0) << "free block " << index << " was referenced";
    ref_counts_[index] = 1;
    NextGeneration(index);
  }
}

void KvBlockPool::ReleaseOne(KvBlockId block) {
  const uint32_t index = HeldIndex(block);
  if (--ref_counts_[index] > 0) return;
  NextGeneration(index);
  free_.push_back(block);
}

// The sequentially consistent store is what keeps a new owner's writes behind the new generation, for a reader that copies
// first and then looks.
void KvBlockPool::NextGeneration(uint32_t block) {
  const uint64_t next = ++generations_[block];
  if (!published_.empty()) published_[block].store(next, std::memory_order_seq_cst);
}

uint32_t KvBlockPool::HeldIndex(KvBlockId block) const {
  const auto index = static_cast<uint32_t>(block);
  CHECK_LT(index, ref_counts_.size()) << "no such block";
  CHECK(ref_counts_[index] > 0) << "block " << index << " is free";
  return index;
}

}  // namespace baton::kvstore
