#include "worker/worker_probe.h"

#include <algorithm>
#include <string>
#include <vector>

namespace baton::worker {
namespace {

const std::vector<double>& RowBounds() {
  static const auto& bounds =
      *new std::vector<double>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  return bounds;
}

// Adds series that share the label `role`.
class Series {
 public:
  Series(base::Metrics& metrics, WorkerRole role) : metrics_(metrics), role_(WorkerRoleName(role)) {}

  prometheus::Histogram& StepSeconds(const std::string& rows) {
    return metrics_.AddHistogram("baton_worker_step_seconds", "Time of one model step.",
                                 base::LatencySecondsBounds(), {{"role", role_}, {"rows", rows}});
  }
  prometheus::Histogram& Seconds(const std::string& what, const std::string& help) {
    return metrics_.AddHistogram("baton_worker_" + what + "_seconds", help,
                                 base::LatencySecondsBounds(), {{"role", role_}});
  }
  prometheus::Histogram& Rows() {
    return metrics_.AddHistogram("baton_worker_batch_rows", "Rows of one model step.", RowBounds(),
                                 {{"role", role_}});
  }
  prometheus::Counter& Total(const std::string& what, const std::string& help) {
    return metrics_.AddCounter("baton_worker_" + what + "_total", help, {{"role", role_}});
  }
  prometheus::Counter& StepThread(const std::string& part) {
    return metrics_.AddCounter("baton_worker_step_thread_seconds_total",
                               "Time of the step thread, by what it was spent on.",
                               {{"role", role_}, {"part", part}});
  }
  prometheus::Counter& Requests(const std::string& outcome) {
    return metrics_.AddCounter("baton_worker_requests_total",
                               "Attempts received, and how they ended.",
                               {{"role", role_}, {"outcome", outcome}});
  }
  prometheus::Gauge& Blocks(const std::string& state) {
    return metrics_.AddGauge("baton_worker_kv_blocks",
                             "KV blocks by state; pinned: held only until a peer has copied them.",
                             {{"role", role_}, {"state", state}});
  }
  prometheus::Gauge& Level(const std::string& what, const std::string& help) {
    return metrics_.AddGauge("baton_worker_" + what, help, {{"role", role_}});
  }

 private:
  base::Metrics& metrics_;
  const std::string role_;
};

}  // namespace

WorkerProbe::WorkerProbe(base::Metrics& metrics, WorkerRole role)
    : prefill_step_seconds(Series(metrics, role).StepSeconds("prefill")),
      decode_step_seconds(Series(metrics, role).StepSeconds("decode")),
      mixed_step_seconds(Series(metrics, role).StepSeconds("mixed")),
      batch_rows(Series(metrics, role).Rows()),
      prefill_tokens(Series(metrics, role).Total("prefill_tokens", "Prompt rows computed.")),
      decode_rows(Series(metrics, role).Total("decode_rows", "Decode rows computed.")),
      preemptions(Series(metrics, role).Total("preemptions", "Sequences that lost their blocks.")),
      time_in_step(Series(metrics, role).StepThread("step")),
      time_in_events(Series(metrics, role).StepThread("events")),
      time_idle(Series(metrics, role).StepThread("idle")),
      requests_received(Series(metrics, role).Requests("received")),
      requests_refused(Series(metrics, role).Requests("refused")),
      requests_finished(Series(metrics, role).Requests("finished")),
      requests_handed_over(Series(metrics, role).Requests("handed_over")),
      requests_cancelled(Series(metrics, role).Requests("cancelled")),
      requests_expired(Series(metrics, role).Requests("expired")),
      requests_failed(Series(metrics, role).Requests("failed")),
      queue_seconds(Series(metrics, role).Seconds("queue", "Received until the first chunk.")),
      prefill_seconds(Series(metrics, role).Seconds("prefill", "First chunk until the first token.")),
      handoff_seconds(Series(metrics, role).Seconds("handoff", "Sealed until all blocks were over.")),
      first_decode_seconds(
          Series(metrics, role).Seconds("first_decode", "Blocks here until the next token.")),
      blocks_free(Series(metrics, role).Blocks("free")),
      blocks_reserved(Series(metrics, role).Blocks("reserved")),
      blocks_held(Series(metrics, role).Blocks("held")),
      blocks_pinned(Series(metrics, role).Blocks("pinned")),
      oldest_pin_seconds(
          Series(metrics, role).Level("oldest_pin_seconds", "Age of the oldest pinned block.")),
      owed_bytes(Series(metrics, role).Level("owed_bytes", "Bytes peers still have to copy.")),
      queued_tokens(Series(metrics, role).Level("queued_tokens", "Prompt tokens not computed yet.")),
      queued_requests(Series(metrics, role).Level("queued_requests", "Requests waiting.")),
      running_sequences(
          Series(metrics, role).Level("running_sequences", "Sequences that hold blocks.")),
      routers_attached(Series(metrics, role).Level("routers_attached", "Routers attached.")) {}

void WorkerProbe::Show(const WorkerLoad& load) {
  blocks_free.Set(load.blocks_free);
  blocks_reserved.Set(load.blocks_reserved);
  blocks_held.Set(load.blocks_held - std::min(load.blocks_held, load.blocks_pinned));
  blocks_pinned.Set(load.blocks_pinned);
  oldest_pin_seconds.Set(absl::ToDoubleSeconds(load.oldest_pin_age.value_or(absl::ZeroDuration())));
  owed_bytes.Set(static_cast<double>(load.owed_bytes));
  queued_tokens.Set(load.queued_tokens);
  queued_requests.Set(load.queued_requests);
  running_sequences.Set(load.running_sequences);
  routers_attached.Set(load.routers_attached);
}

}  // namespace baton::worker
