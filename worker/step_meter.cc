#include "worker/step_meter.h"

#include "base/check.h"

namespace baton::worker {
namespace {

// Weight of the newest step: about the last ten count.
constexpr double kNewest = 0.1;

void Average(double newest, double& average) {
  average = average == 0 ? newest : kNewest * newest + (1 - kNewest) * average;
}

}  // namespace

void StepMeter::TurnStarted(absl::Time now) {
  turn_started_ = now;
  step_of_turn_ = absl::ZeroDuration();
  if (turn_ended_ != absl::InfinitePast()) {
    probe_.time_idle.Increment(absl::ToDoubleSeconds(now - turn_ended_));
  }
}

void StepMeter::TurnEnded(absl::Time now) {
  turn_ended_ = now;
  probe_.time_in_events.Increment(absl::ToDoubleSeconds(now - turn_started_ - step_of_turn_));
}

void StepMeter::StepStarted(absl::Time now) {
  base::MutexLock lock(mutex_);
  started_ = now;
}

void StepMeter::StepEnded(absl::Time now, const runner::StepOutbox& outbox,
                          const runner::RunnerCounts& counts) {
  absl::Duration took;
  const bool empty = outbox.prefill_tokens + outbox.decode_rows == 0;
  {
    base::MutexLock lock(mutex_);
    CHECK(started_.has_value());
    took = now - *started_;
    started_.reset();
    counts_ = counts;
    if (!empty) {
      ++steps_;
      Learn(absl::ToDoubleSeconds(took), outbox);
    }
  }
  if (empty) return;
  step_of_turn_ = took;
  Observe(took, outbox);
}

void StepMeter::Learn(double seconds, const runner::StepOutbox& outbox) {
  if (outbox.prefill_tokens == 0) return Average(seconds, decode_step_seconds_);
  // In a mixed step, what decode rows alone would have taken is not the prompt's.
  if (outbox.decode_rows > 0) seconds -= decode_step_seconds_;
  if (seconds <= 0) return;
  Average(outbox.prefill_tokens / seconds, prefill_tokens_per_second_);
}

void StepMeter::Observe(absl::Duration took, const runner::StepOutbox& outbox) {
  prometheus::Histogram& histogram = outbox.decode_rows == 0      ? probe_.prefill_step_seconds
                                     : outbox.prefill_tokens == 0 ? probe_.decode_step_seconds
                                                                  : probe_.mixed_step_seconds;
  histogram.Observe(absl::ToDoubleSeconds(took));
  probe_.time_in_step.Increment(absl::ToDoubleSeconds(took));
  probe_.batch_rows.Observe(outbox.prefill_tokens + outbox.decode_rows);
  probe_.prefill_tokens.Increment(outbox.prefill_tokens);
  probe_.decode_rows.Increment(outbox.decode_rows);
  probe_.preemptions.Increment(outbox.preempted);
}

void StepMeter::Fill(absl::Time now, WorkerLoad& load) const {
  base::MutexLock lock(mutex_);
  load.queued_tokens = counts_.queued_tokens;
  load.queued_requests = counts_.waiting;
  load.running_sequences = counts_.running;
  load.step_count = steps_;
  if (started_.has_value()) load.current_step_age = now - *started_;
  load.prefill_tokens_per_second = prefill_tokens_per_second_;
  if (decode_step_seconds_ > 0) load.decode_step = absl::Seconds(decode_step_seconds_);
}

}  // namespace baton::worker
