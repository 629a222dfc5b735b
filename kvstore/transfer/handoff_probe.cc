#include "kvstore/transfer/handoff_probe.h"

#include <string>

namespace baton::kvstore {
namespace {

constexpr HandoffOutcome kOutcomes[kHandoffOutcomeCount] = {
    HandoffOutcome::kOk,       HandoffOutcome::kCancelled, HandoffOutcome::kUnavailable,
    HandoffOutcome::kDataLoss, HandoffOutcome::kRefused,   HandoffOutcome::kFailed};

const char* Name(HandoffOutcome outcome) {
  switch (outcome) {
    case HandoffOutcome::kOk: return "ok";
    case HandoffOutcome::kCancelled: return "cancelled";
    case HandoffOutcome::kUnavailable: return "unavailable";
    case HandoffOutcome::kDataLoss: return "data_loss";
    case HandoffOutcome::kRefused: return "refused";
    case HandoffOutcome::kFailed: return "failed";
  }
  return "failed";
}

size_t IndexOf(TransportKind kind) { return static_cast<size_t>(kind) - 1; }

}  // namespace

HandoffOutcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return HandoffOutcome::kOk;
    case absl::StatusCode::kCancelled: return HandoffOutcome::kCancelled;
    case absl::StatusCode::kUnavailable: return HandoffOutcome::kUnavailable;
    case absl::StatusCode::kDataLoss: return HandoffOutcome::kDataLoss;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted: return HandoffOutcome::kRefused;
    default: return HandoffOutcome::kFailed;
  }
}

HandoffProbe::HandoffProbe(base::Metrics& metrics, Side side) {
  const std::string side_name = side == Side::kSource ? "source" : "sink";
  for (const HandoffOutcome outcome : kOutcomes) {
    ended_[static_cast<size_t>(outcome)] =
        &metrics.AddCounter("baton_handoffs_total", "Hand-offs ended, by how they did.",
                            {{"side", side_name}, {"outcome", Name(outcome)}});
  }
  for (const TransportKind kind : kAllTransports) {
    const base::MetricLabels labels = {{"side", side_name},
                                       {"transport", std::string(Name(kind))}};
    bytes_[IndexOf(kind)] = &metrics.AddCounter(
        "baton_handoff_bytes_total", "KV bytes of ranges that were handed over.", labels);
    links_[IndexOf(kind)] =
        &metrics.AddGauge("baton_handoff_links", "Links that are up, by transport.", labels);
  }
  seconds_ = &metrics.AddHistogram("baton_handoff_seconds",
                                   "Begun (source) or expected (sink) until ended.",
                                   base::LatencySecondsBounds(), {{"side", side_name}});
  if (side == Side::kSink) return;
  pinned_blocks_ = &metrics.AddGauge("baton_handoff_pinned_blocks",
                                     "Blocks kept for sinks that do not have them yet.");
  oldest_pin_seconds_ = &metrics.AddGauge("baton_handoff_oldest_pin_seconds",
                                          "Age of the oldest hand-off that keeps blocks; 0: none.");
}

void HandoffProbe::CountEnd(const absl::Status& status, absl::Duration since_begin) {
  ended_[static_cast<size_t>(OutcomeOf(status))]->Increment();
  seconds_->Observe(absl::ToDoubleSeconds(since_begin));
}

void HandoffProbe::CountBytes(TransportKind transport, uint64_t bytes) {
  bytes_[IndexOf(transport)]->Increment(static_cast<double>(bytes));
}

void HandoffProbe::CountLink(TransportKind transport, int by) {
  links_[IndexOf(transport)]->Increment(by);
}

void HandoffProbe::SetPins(uint64_t blocks, absl::Duration oldest_age) {
  pinned_blocks_->Set(static_cast<double>(blocks));
  oldest_pin_seconds_->Set(absl::ToDoubleSeconds(oldest_age));
}

}  // namespace baton::kvstore
