#include "worker/attempt_table.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::worker {

absl::Status AttemptTable::Begin(const AttemptKey& key, const base::Id128& router) {
  if (active_.contains(key)) {
    return absl::AlreadyExistsError(
        absl::StrCat("key: attempt ", key.attempt, " of ", key.request_id.ToHex(), " is here"));
  }
  const auto latest = remembered_.find(key.request_id);
  if (latest != remembered_.end() && latest->second.attempt >= key.attempt) {
    const std::string what = absl::StrCat("key: attempt ", latest->second.attempt, " of ",
                                          key.request_id.ToHex(), " was ");
    if (latest->second.cancelled) return absl::CancelledError(absl::StrCat(what, "cancelled"));
    return absl::AlreadyExistsError(absl::StrCat(what, "here"));
  }
  active_.emplace(key, Active{router});
  return absl::OkStatus();
}

void AttemptTable::End(const AttemptKey& key) {
  if (active_.erase(key) > 0) Remember(key, /*cancelled=*/false);
}

bool AttemptTable::Cancel(const AttemptKey& key, const base::Id128& router) {
  const auto active = active_.find(key);
  if (active == active_.end()) {
    Remember(key, /*cancelled=*/true);
    return false;
  }
  if (active->second.router != router) return false;
  return !std::exchange(active->second.cancelled, true);
}

void AttemptTable::Remember(const AttemptKey& key, bool cancelled) {
  const auto [latest, added] =
      remembered_.try_emplace(key.request_id, Latest{key.attempt, cancelled});
  if (!added) {
    if (latest->second.attempt >= key.attempt) return;
    latest->second = {key.attempt, cancelled};
  }
  forget_order_.push_back(key);
  if (forget_order_.size() <= kRememberedMax) return;
  const AttemptKey oldest = forget_order_.front();
  forget_order_.pop_front();
  // A later attempt of the same request has its own place in the order.
  const auto forgotten = remembered_.find(oldest.request_id);
  if (forgotten != remembered_.end() && forgotten->second.attempt == oldest.attempt) {
    remembered_.erase(forgotten);
  }
}

}  // namespace baton::worker
