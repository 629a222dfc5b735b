// What the router counts and times, looked up once. Label values come from closed enums.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "router/request.h"

namespace baton::router {

// How a request ended.
enum class Outcome {
  kStop,
  kLength,
  kCancelled,
  kDeadlineExceeded,
  kInvalid,  // INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION.
  kExhausted,
  kUnavailable,
  kInternal,
};
inline constexpr int kOutcomes = 8;

Outcome OutcomeOf(const absl::Status& status);  // REQUIRES: !status.ok().
const char* NameOf(Outcome outcome);

enum class DropReason { kUnknownRequest, kOldAttempt, kDuplicate };
inline constexpr int kDropReasons = 3;

// Index: role (prefill, decode) × state (ready, draining, suspect).
inline constexpr int kWorkerRoles = 2;
inline constexpr int kWorkerStates = 3;

class RouterProbe {
 public:
  explicit RouterProbe(base::Metrics& metrics);

  void CountOutcome(Outcome outcome) { outcomes_[static_cast<int>(outcome)]->Increment(); }
  void CountDropped(DropReason reason, double count = 1) {
    dropped_[static_cast<int>(reason)]->Increment(count);
  }
  // What a finished request used and where its time went.
  void CountAnswer(const AnswerEnding& ending);

  prometheus::Counter& retries;
  prometheus::Counter& workers_lost;
  prometheus::Counter& slow_clients;
  prometheus::Counter& step_batches;
  prometheus::Gauge& requests_waiting;
  prometheus::Gauge& requests_running;
  prometheus::Gauge& queue_tokens;
  prometheus::Gauge& text_pool_tasks;
  prometheus::Gauge& text_pool_bytes;
  prometheus::Gauge& answer_buffer_bytes;
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token;
  std::array<std::array<prometheus::Gauge*, kWorkerStates>, kWorkerRoles> workers;

 private:
  std::array<prometheus::Counter*, kOutcomes> outcomes_;
  std::array<prometheus::Counter*, kDropReasons> dropped_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& cached_tokens_;
  prometheus::Counter& completion_tokens_;
  prometheus::Histogram& request_seconds_;
  // text, queue, prefill_queue, prefill, handoff, first_decode.
  std::array<prometheus::Histogram*, 6> parts_;
};

}  // namespace baton::router
