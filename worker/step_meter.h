// Counts and times the steps of one engine: for its load reports, its metrics, and for whoever wonders if it is wedged.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "runner/runner.h"
#include "worker/router_link.h"
#include "worker/worker_probe.h"

namespace baton::worker {

// The step thread tells it; any thread may ask.
class StepMeter {
 public:
  explicit StepMeter(WorkerProbe& probe) : probe_(probe) {}

  // A turn of the step thread: intake, one step, telling routers. Between turns it is idle.
  void TurnStarted(absl::Time now);
  void TurnEnded(absl::Time now);

  void StepStarted(absl::Time now);
  // Of a step without rows only the counts are kept.
  void StepEnded(absl::Time now, const runner::StepOutbox& outbox,
                 const runner::RunnerCounts& counts);

  // Fills in what it knows: runner's counts, steps, rates.
  void Fill(absl::Time now, WorkerLoad& load) const;

 private:
  void Observe(absl::Duration took, const runner::StepOutbox& outbox);
  void Learn(double seconds, const runner::StepOutbox& outbox)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkerProbe& probe_;
  // The step thread's own.
  absl::Time turn_started_ = absl::InfinitePast();
  absl::Time turn_ended_ = absl::InfinitePast();
  absl::Duration step_of_turn_;

  mutable base::Mutex mutex_;
  runner::RunnerCounts counts_ ABSL_GUARDED_BY(mutex_);
  uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Time> started_ ABSL_GUARDED_BY(mutex_);
  // Moving averages; 0: not known.
  double prefill_tokens_per_second_ ABSL_GUARDED_BY(mutex_) = 0;
  double decode_step_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::worker
