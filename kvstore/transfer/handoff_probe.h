// What is counted of hand-offs, on either side. Made once a worker and handed to its LinkSender or LinkReceiver.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "kvstore/transfer/link_hello.h"

namespace baton::kvstore {

enum class HandoffOutcome { kOk, kCancelled, kUnavailable, kDataLoss, kRefused, kFailed };
inline constexpr size_t kHandoffOutcomeCount = 6;

HandoffOutcome OutcomeOf(const absl::Status& status);

class HandoffProbe {
 public:
  enum class Side { kSource, kSink };
  // Adds the series to `metrics`, which outlives the probe.
  HandoffProbe(base::Metrics& metrics, Side side);

  void CountEnd(const absl::Status& status, absl::Duration since_begin);
  void CountBytes(TransportKind transport, uint64_t bytes);
  void CountLink(TransportKind transport, int by);  // +1: it is up, -1: it was lost.
  // The source's blocks that wait for a sink.
  void SetPins(uint64_t blocks, absl::Duration oldest_age);

 private:
  std::array<prometheus::Counter*, kHandoffOutcomeCount> ended_;
  std::array<prometheus::Counter*, 3> bytes_;  // By transport.
  std::array<prometheus::Gauge*, 3> links_;
  prometheus::Histogram* seconds_;
  prometheus::Gauge* pinned_blocks_ = nullptr;  // Of the source.
  prometheus::Gauge* oldest_pin_seconds_ = nullptr;
};

}  // namespace baton::kvstore
