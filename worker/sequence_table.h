// The sequences an engine works on, by their three names: the runner's id, the attempt's key, the router's incarnation.
//
// `Sequence` has members `id`, `key`, `router` and `deadline`. Thread-compatible: the step thread owns it.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/id128.h"
#include "runner/runner.h"
#include "worker/attempt_key.h"

namespace baton::worker {

template <typename Sequence>
class SequenceTable {
 public:
  // Stays where it is until Remove(). REQUIRES: id and key are new.
  Sequence& Add(Sequence sequence) {
    const runner::SequenceId id = sequence.id;
    CHECK(by_key_.emplace(sequence.key, id).second) << sequence.key << " is here";
    next_deadline_ = std::min(next_deadline_, sequence.deadline);
    auto [at, added] = by_id_.emplace(id, std::make_unique<Sequence>(std::move(sequence)));
    CHECK(added);
    return *at->second;
  }

  // Null: unknown.
  Sequence* Find(runner::SequenceId id) {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second.get();
  }
  Sequence* Find(const AttemptKey& key) {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : Find(found->second);
  }

  void Remove(runner::SequenceId id) {
    const auto found = by_id_.find(id);
    CHECK(found != by_id_.end());
    by_key_.erase(found->second->key);
    by_id_.erase(found);
  }

  // Those whose deadline has passed; each is told once. Looks at the table only when one may have.
  std::vector<runner::SequenceId> TakeExpired(absl::Time now) {
    std::vector<runner::SequenceId> expired;
    if (now < next_deadline_) return expired;
    next_deadline_ = absl::InfiniteFuture();
    for (auto& [id, sequence] : by_id_) {
      if (sequence->deadline <= now) {
        sequence->deadline = absl::InfiniteFuture();
        expired.push_back(id);
      } else {
        next_deadline_ = std::min(next_deadline_, sequence->deadline);
      }
    }
    return expired;
  }

  template <typename Predicate>
  std::vector<runner::SequenceId> Where(Predicate predicate) const {
    std::vector<runner::SequenceId> ids;
    for (const auto& [id, sequence] : by_id_) {
      if (predicate(*sequence)) ids.push_back(id);
    }
    return ids;
  }

  // No deadline is earlier; it may be of a sequence that is gone.
  absl::Time next_deadline() const { return next_deadline_; }
  size_t size() const { return by_id_.size(); }

 private:
  absl::flat_hash_map<runner::SequenceId, std::unique_ptr<Sequence>> by_id_;
  absl::flat_hash_map<AttemptKey, runner::SequenceId> by_key_;
  absl::Time next_deadline_ = absl::InfiniteFuture();
};

}  // namespace baton::worker
