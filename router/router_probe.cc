#include "router/router_probe.h"

#include "base/check.h"

namespace baton::router {
namespace {

constexpr std::array<const char*, kOutcomes> kOutcomeNames = {
    "stop",    "length",    "cancelled",   "deadline_exceeded",
    "invalid", "exhausted", "unavailable", "internal"};
constexpr std::array<const char*, kDropReasons> kDropNames = {"unknown_request", "old_attempt",
                                                              "duplicate"};
constexpr std::array<const char*, kWorkerRoles> kRoleNames = {"prefill", "decode"};
constexpr std::array<const char*, kWorkerStates> kStateNames = {"ready", "draining", "suspect"};
constexpr std::array<const char*, 6> kPartNames = {"text",    "queue",   "prefill_queue",
                                                   "prefill", "handoff", "first_decode"};

}  // namespace

Outcome OutcomeOf(const absl::Status& status) {
  CHECK(!status.ok());
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      return Outcome::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kDeadlineExceeded;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return Outcome::kInvalid;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kExhausted;
    case absl::StatusCode::kUnavailable:
      return Outcome::kUnavailable;
    default:
      return Outcome::kInternal;
  }
}

const char* NameOf(Outcome outcome) { return kOutcomeNames[static_cast<int>(outcome)]; }

RouterProbe::RouterProbe(base::Metrics& metrics)
    : retries(metrics.AddCounter("baton_router_retries_total",
                                 "Attempts after the first, of all requests.")),
      workers_lost(metrics.AddCounter("baton_router_workers_lost_total",
                                      "Workers whose stream broke or that fell silent.")),
      slow_clients(metrics.AddCounter("baton_router_slow_clients_total",
                                      "Clients cut off because they read too slowly.")),
      step_batches(metrics.AddCounter("baton_router_step_batches_total",
                                      "Step messages received from workers.")),
      requests_waiting(metrics.AddGauge("baton_router_requests_waiting",
                                        "Requests that were sent no token yet.")),
      requests_running(
          metrics.AddGauge("baton_router_requests_running", "Requests whose answer is streaming.")),
      queue_tokens(metrics.AddGauge("baton_router_queue_tokens",
                                    "Prompt tokens of requests that wait for a worker.")),
      text_pool_tasks(metrics.AddGauge("baton_router_text_pool_tasks",
                                       "Prompts waiting for, or on, a text thread.")),
      text_pool_bytes(metrics.AddGauge("baton_router_text_pool_bytes",
                                       "Bytes of text waiting for, or on, a text thread.")),
      answer_buffer_bytes(metrics.AddGauge("baton_router_answer_buffer_bytes",
                                           "Bytes of answers that clients have not read.")),
      time_to_first_token(
          metrics.AddHistogram("baton_router_time_to_first_token_seconds",
                               "Arrival of a request until its first token left the router.",
                               base::LatencySecondsBounds())),
      inter_token(
          metrics.AddHistogram("baton_router_inter_token_seconds",
                               "Time between two tokens of an answer as they leave the router.",
                               base::LatencySecondsBounds())),
      prompt_tokens_(metrics.AddCounter("baton_router_prompt_tokens_total",
                                        "Prompt tokens of finished requests.")),
      cached_tokens_(metrics.AddCounter("baton_router_cached_tokens_total",
                                        "Prompt tokens of finished requests found in a cache.")),
      completion_tokens_(metrics.AddCounter("baton_router_completion_tokens_total",
                                            "Tokens generated for finished requests.")),
      request_seconds_(
          metrics.AddHistogram("baton_router_request_seconds",
                               "Arrival of a request until its last token left the router.",
                               base::LatencySecondsBounds())) {
  for (int i = 0; i < kOutcomes; ++i) {
    outcomes_[i] = &metrics.AddCounter("baton_router_requests_total", "Requests by how they ended.",
                                       {{"outcome", kOutcomeNames[i]}});
  }
  for (int i = 0; i < kDropReasons; ++i) {
    dropped_[i] = &metrics.AddCounter("baton_router_events_dropped_total",
                                      "Token events that were not relayed, by reason.",
                                      {{"reason", kDropNames[i]}});
  }
  for (int role = 0; role < kWorkerRoles; ++role) {
    for (int state = 0; state < kWorkerStates; ++state) {
      workers[role][state] =
          &metrics.AddGauge("baton_router_workers", "Attached workers by role and state.",
                            {{"role", kRoleNames[role]}, {"state", kStateNames[state]}});
    }
  }
  for (size_t i = 0; i < kPartNames.size(); ++i) {
    parts_[i] = &metrics.AddHistogram("baton_router_part_seconds",
                                      "Where the time before the second token went, by part.",
                                      base::LatencySecondsBounds(), {{"part", kPartNames[i]}});
  }
}

void RouterProbe::CountAnswer(const AnswerEnding& ending) {
  prompt_tokens_.Increment(ending.usage.prompt_tokens);
  cached_tokens_.Increment(ending.usage.cached_tokens);
  completion_tokens_.Increment(ending.usage.completion_tokens);
  const Timings& timings = ending.timings;
  const std::optional<absl::Duration> parts[] = {timings.text,          timings.queue,
                                                 timings.prefill_queue, timings.prefill,
                                                 timings.handoff,       timings.first_decode};
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts[i].has_value()) parts_[i]->Observe(absl::ToDoubleSeconds(*parts[i]));
  }
  if (timings.total.has_value()) request_seconds_.Observe(absl::ToDoubleSeconds(*timings.total));
}

}  // namespace baton::router
