// The metrics of one worker, every one labelled with its role: two workers of one process share a registry.
//
// Where a request's time goes: queue → prefill → hand-off → first decode → inter-token. Where the step thread's time goes:
// step (the model and what surrounds it), events (intake and telling routers), idle.
#pragma once

#include "base/metrics.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "worker/router_link.h"
#include "worker/worker_hello.h"

namespace baton::worker {

struct WorkerProbe {
  WorkerProbe(base::Metrics& metrics, WorkerRole role);

  // Steps.
  prometheus::Histogram& prefill_step_seconds;  // Only prompt rows.
  prometheus::Histogram& decode_step_seconds;   // Only decode rows.
  prometheus::Histogram& mixed_step_seconds;
  prometheus::Histogram& batch_rows;
  prometheus::Counter& prefill_tokens;
  prometheus::Counter& decode_rows;
  prometheus::Counter& preemptions;
  prometheus::Counter& time_in_step;
  prometheus::Counter& time_in_events;
  prometheus::Counter& time_idle;

  // Requests.
  prometheus::Counter& requests_received;
  prometheus::Counter& requests_refused;
  prometheus::Counter& requests_finished;    // By a stop token, or by length.
  prometheus::Counter& requests_handed_over; // Prefill: the decode worker has the blocks.
  prometheus::Counter& requests_cancelled;   // By their router, or because it went away.
  prometheus::Counter& requests_expired;     // At their deadline.
  prometheus::Counter& requests_failed;
  prometheus::Histogram& queue_seconds;
  prometheus::Histogram& prefill_seconds;
  prometheus::Histogram& handoff_seconds;
  prometheus::Histogram& first_decode_seconds;

  // A snapshot.
  prometheus::Gauge& blocks_free;
  prometheus::Gauge& blocks_reserved;
  prometheus::Gauge& blocks_held;
  prometheus::Gauge& blocks_pinned;
  prometheus::Gauge& oldest_pin_seconds;
  prometheus::Gauge& owed_bytes;
  prometheus::Gauge& queued_tokens;
  prometheus::Gauge& queued_requests;
  prometheus::Gauge& running_sequences;
  prometheus::Gauge& routers_attached;

  // Sets the gauges.
  void Show(const WorkerLoad& load);
};

}  // namespace baton::worker
