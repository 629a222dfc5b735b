// What an engine tells its routers, kept for a test to look at. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "base/id128.h"
#include "base/mutex.h"
#include "model/sampling/sampling.h"
#include "runner/runner.h"
#include "worker/router_link.h"

namespace baton::fakes {

// One attempt as its router puts it together out of what several workers say.
struct Heard {
  std::map<uint32_t, model::SampledToken> tokens;  // By output position.
  std::vector<worker::TokenEvent> events;
  runner::FinishReason finish = runner::FinishReason::kNone;
  std::vector<absl::Status> errors;
  bool over() const { return finish != runner::FinishReason::kNone || !errors.empty(); }
  // In order; CHECKs that no position is missing.
  std::vector<uint32_t> ids() const;
};

class RecordingRouters final : public worker::RouterEvents {
 public:
  void Publish(absl::Span<const worker::TokenEvent> events) override;
  bool IsAttached(const base::Id128& router) const override;

  void SetAttached(const base::Id128& router, bool attached);
  Heard heard(const worker::AttemptKey& key) const;
  // Waits until something was heard that makes `condition` true. False: not within ten seconds.
  bool WaitUntil(const std::function<bool()>& condition) const;

 private:
  mutable base::Mutex mutex_;
  mutable base::CondVar changed_;
  std::set<base::Id128> away_ ABSL_GUARDED_BY(mutex_);
  std::map<worker::AttemptKey, Heard> heard_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::fakes
