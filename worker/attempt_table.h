// Which attempts are here, and which were a short while ago: a retried rpc must not start a second run of the same
// attempt, and a cancel that overtook its request must still stop it.
//
// Remembered are at most kRememberedMax attempts that ended, or were cancelled before they came; active ones are bounded
// by the engine's queue. Thread-compatible: the engine guards it together with its inbox.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "worker/attempt_key.h"

namespace baton::worker {

class AttemptTable {
 public:
  // At 500 requests a second this is eight seconds' worth; 64 bytes each.
  static constexpr size_t kRememberedMax = 4096;

  // The attempt becomes active. ALREADY_EXISTS: it, or a later one, is here or was. CANCELLED: its cancel came first.
  absl::Status Begin(const AttemptKey& key, const base::Id128& router);
  // An active attempt ended. Others are ignored.
  void End(const AttemptKey& key);
  // True if it is active, its router's, and not cancelled before. If it is not here, it will be refused should it come.
  bool Cancel(const AttemptKey& key, const base::Id128& router);

  size_t active() const { return active_.size(); }
  size_t remembered() const { return remembered_.size(); }

 private:
  struct Active {
    base::Id128 router;
    bool cancelled = false;
  };
  struct Latest {
    uint32_t attempt = 0;
    bool cancelled = false;  // Before it came.
  };
  void Remember(const AttemptKey& key, bool cancelled);

  absl::flat_hash_map<AttemptKey, Active> active_;
  // The latest ended or cancelled attempt of a request, and the order in which they are forgotten.
  absl::flat_hash_map<base::Id128, Latest> remembered_;
  std::deque<AttemptKey> forget_order_;
};

}  // namespace baton::worker
