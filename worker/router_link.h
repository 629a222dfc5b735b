// The two sides of a worker's link to its routers: what the engine tells them, and what they may ask of it.
//
//   engine ── TokenEvent ──▶ RouterEvents (AttachClient) ══ Attach stream ══▶ router
//   engine ◀── cancel ────── EngineControl ◀═══════════════════════════════════ router
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/id128.h"
#include "model/sampling/sampling.h"
#include "runner/runner.h"
#include "worker/attempt_key.h"

namespace baton::worker {

// What a prefill took.
struct PrefillReport {
  uint32_t cached_tokens = 0;
  absl::Duration queue;    // Received until the first chunk started.
  absl::Duration compute;  // First chunk started until the first token was drawn.
};

// What taking a sequence over took.
struct DecodeReport {
  absl::Duration handoff;       // Sealed until all blocks were here.
  absl::Duration first_decode;  // Blocks here until the first token was drawn here.
};

// Something that happened to an attempt.
struct TokenEvent {
  base::Id128 router;
  AttemptKey key;
  uint32_t sample_index = 0;
  uint32_t position = 0;                               // Output position of tokens[0].
  absl::InlinedVector<model::SampledToken, 2> tokens;  // May be empty with an error.
  runner::FinishReason finish = runner::FinishReason::kNone;
  absl::Status error;                                  // Not OK: the attempt ended without finishing.
  std::optional<PrefillReport> prefill_report;
  std::optional<DecodeReport> decode_report;
  std::vector<model::PositionLogprobs> prompt_logprobs;
};

// A snapshot of an engine; see LoadReport in protos/baton/v1/attach_service.proto.
struct WorkerLoad {
  uint32_t blocks_free = 0;      // Neither held nor reserved.
  uint32_t blocks_pinned = 0;    // Of the held ones: only a peer's copy is still owed.
  uint32_t blocks_reserved = 0;
  uint32_t blocks_held = 0;      // Pinned ones included.
  uint32_t queued_tokens = 0;
  uint32_t queued_requests = 0;
  uint32_t running_sequences = 0;
  uint64_t step_count = 0;
  std::optional<absl::Duration> current_step_age;
  double prefill_tokens_per_second = 0;
  std::optional<absl::Duration> decode_step;
  std::optional<absl::Duration> oldest_pin_age;
  uint64_t owed_bytes = 0;
  uint32_t routers_attached = 0;  // Filled in by the AttachClient.

  bool operator==(const WorkerLoad&) const = default;
};

// Thread-safe; no call blocks.
class RouterEvents {
 public:
  virtual ~RouterEvents() = default;
  // Sends what one step produced: one message a router. Events of routers that are not attached are dropped.
  virtual void Publish(absl::Span<const TokenEvent> events) = 0;
  virtual bool IsAttached(const base::Id128& router) const = 0;
};

// Thread-safe; no call blocks.
class EngineControl {
 public:
  virtual ~EngineControl() = default;
  // Stops work on an attempt by the next step, if `router` owns it. An unknown one is remembered for a while, since a
  // cancel may overtake its request.
  virtual void Cancel(const base::Id128& router, const AttemptKey& key) = 0;
  // Nobody is there to hear of this router's attempts: stops them all.
  virtual void DropRouter(const base::Id128& router) = 0;
  virtual WorkerLoad load() const = 0;
};

}  // namespace baton::worker
