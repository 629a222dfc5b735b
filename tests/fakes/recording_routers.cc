#include "tests/fakes/recording_routers.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"

namespace baton::fakes {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

std::vector<uint32_t> Heard::ids() const {
  std::vector<uint32_t> ids;
  for (const auto& [position, token] : tokens) {
    CHECK(ids.empty() || position == tokens.begin()->first + ids.size()) << "a token is missing";
    ids.push_back(token.token);
  }
  return ids;
}

void RecordingRouters::Publish(absl::Span<const worker::TokenEvent> events) {
  {
    base::MutexLock lock(mutex_);
    for (const worker::TokenEvent& event : events) {
      if (away_.contains(event.router)) continue;
      Heard& heard = heard_[event.key];
      for (size_t i = 0; i < event.tokens.size(); ++i) {
        const auto position = event.position + static_cast<uint32_t>(i);
        const auto [at, added] = heard.tokens.emplace(position, event.tokens[i]);
        CHECK_EQ(at->second.token, event.tokens[i].token) << "two tokens at one position: ";
        CHECK(at->second.logprobs == event.tokens[i].logprobs);
        CHECK(!added || position == 0 || heard.tokens.size() == 1 ||
              heard.tokens.contains(position - 1))
            << "token " << position << " came before the one before it";
      }
      if (event.finish != runner::FinishReason::kNone) heard.finish = event.finish;
      if (!event.error.ok()) heard.errors.push_back(event.error);
      heard.events.push_back(event);
    }
  }
  changed_.NotifyAll();
}

bool RecordingRouters::IsAttached(const base::Id128& router) const {
  base::MutexLock lock(mutex_);
  return !away_.contains(router);
}

void RecordingRouters::SetAttached(const base::Id128& router, bool attached) {
  base::MutexLock lock(mutex_);
  if (attached) {
    away_.erase(router);
  } else {
    away_.insert(router);
  }
}

Heard RecordingRouters::heard(const worker::AttemptKey& key) const {
  base::MutexLock lock(mutex_);
  const auto found = heard_.find(key);
  return found == heard_.end() ? Heard{} : found->second;
}

bool RecordingRouters::WaitUntil(const std::function<bool()>& condition) const {
  const absl::Time until = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() >= until) return false;
    base::MutexLock lock(mutex_);
    // Short, since the condition may also be of what no event tells.
    changed_.WaitFor(mutex_, absl::Milliseconds(2));
  }
  return true;
}

}  // namespace baton::fakes
