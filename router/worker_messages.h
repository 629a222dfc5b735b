// What the router and its workers say to each other, in the router's own terms; worker_codec
// translates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/id128.h"
#include "router/request.h"

namespace baton::router {

// One attempt at one request.
struct RequestKey {
  base::Id128 id;
  uint32_t attempt = 0;
  bool operator==(const RequestKey&) const = default;
};

enum class WorkerRole { kPrefill, kDecode };

struct WorkerHello {
  base::Id128 incarnation;
  WorkerRole role = WorkerRole::kPrefill;
  std::string address;  // host:port
  std::string model_name;
  std::string model_digest;
  std::string compatibility_digest;  // Two workers of one digest may exchange KV.
  uint32_t block_tokens = 0;
  uint64_t kv_bytes_per_token = 0;
  uint32_t context_tokens = 0;
  uint32_t vocabulary_size = 0;
  uint32_t blocks_total = 0;
  uint32_t running_sequences_max = 0;
  uint32_t chunk_tokens = 0;
  std::string cpu_level;
  bool local_prefill = false;
};

struct LoadReport {
  uint64_t sequence_number = 0;
  uint32_t blocks_free = 0;
  uint32_t blocks_pinned = 0;
  uint32_t blocks_reserved = 0;
  uint32_t queued_tokens = 0;
  uint32_t queued_requests = 0;
  uint32_t running_sequences = 0;
  uint64_t step_count = 0;
  std::optional<absl::Duration> current_step_age;  // Absent: idle.
  double prefill_tokens_per_second = 0;            // 0: not known yet.
  std::optional<absl::Duration> decode_step;       // Absent: not known yet.
  uint64_t owed_bytes = 0;
};

struct PrefillReport {
  uint32_t cached_tokens = 0;
  absl::Duration queue;
  absl::Duration compute;
};

struct DecodeReport {
  absl::Duration handoff;
  absl::Duration first_decode;
};

// What few events carry.
struct EventExtras {
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;
  std::optional<PrefillReport> prefill_report;
  std::optional<DecodeReport> decode_report;
  absl::Status error;  // Not OK: the attempt ended without finishing.
};

struct TokenEvent {
  RequestKey key;
  uint32_t position = 0;     // Output position of the first token.
  uint32_t token_begin = 0;  // In StepBatch::tokens.
  uint32_t token_count = 0;
  FinishReason finish_reason = FinishReason::kNone;
  std::unique_ptr<const EventExtras> extras;  // Null: none.
};

// All that one step of a worker produced for this router. Flat, so that a step costs a handful of
// allocations however many requests it has.
struct StepBatch {
  base::Id128 worker;
  std::vector<TokenEvent> events;
  std::vector<uint32_t> tokens;
  std::shared_ptr<void> receipt;  // Let go of when all lanes are done: the stream may read on.

  absl::Span<const uint32_t> TokensOf(const TokenEvent& event) const {
    return absl::MakeConstSpan(tokens).subspan(event.token_begin, event.token_count);
  }
};

// An attempt as both its workers are told it.
struct EngineRequest {
  RequestKey key;
  base::Id128 router_incarnation;
  std::shared_ptr<const std::vector<uint32_t>> tokens;  // The prompt.
  SamplingParams sampling;                              // The seed is set.
  uint32_t max_tokens = 0;
  std::vector<uint32_t> stop_token_ids;  // End-of-sequence tokens included.
  LogprobOptions logprob_options;
  absl::Time deadline = absl::InfiniteFuture();
};

}  // namespace baton::router
