// Placement policy: which workers take a request. Pure functions of a snapshot: no clock, no lock,
// no wire, so that a test can state any cluster as a literal; the registry owns the live state.
//
// Estimates time, in seconds:
//
//   ttft(P, D) = (queued tokens of P + prompt tokens) / rate(P) + max(0, bytes owed on the link /
//   link rate - overlap) cost(P, D) = ttft + w · tpot increase(D) + memory pressure(D)
//
// The best few D by their own part are combined with the best few P of the same compatibility
// group, never the full product. Ties (within 0.1 %) are broken by a draw, so that equal workers
// share equal load.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace baton::router {

// A worker as placement sees it: its last report with what was placed since added.
struct WorkerLoad {
  bool prefills = false;       // A prefill worker.
  bool decodes = false;        // A decode worker.
  bool local_prefill = false;  // A decode worker that can do both.
  bool accepting = false;      // Ready: neither draining, nor suspect.
  uint32_t compatibility = 0;  // Equal numbers may exchange KV.
  double prefill_rate = 0;     // Prompt tokens a second; 0: not known.
  uint64_t queued_tokens = 0;  // Prompt tokens before a new one.
  uint32_t running_sequences = 0;
  uint32_t running_sequences_max = 0;
  double decode_step_seconds = 0;  // 0: not known.
  uint64_t tokens_free = 0;        // KV room, in tokens.
  uint64_t tokens_total = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t owed_bytes = 0;  // KV it still has to hand on.
  uint64_t refused_tokens =
      ~0ull;  // It just refused a request of that many tokens: not asked for so many again yet.
};

struct PlacementRequest {
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;  // 1: needs no decode worker.
};

// Indices into the snapshot. Without `prefill`, the decode worker computes the prompt too.
struct Placement {
  std::optional<uint32_t> prefill;
  std::optional<uint32_t> decode;
  // The terms, for logs.
  double ttft_seconds = 0;
  double tpot_seconds = 0;
  double memory_seconds = 0;
  double cost_seconds() const { return ttft_seconds + tpot_seconds + memory_seconds; }
};

// UNAVAILABLE: no worker, or none that fits another, is attached and staying.
// RESOURCE_EXHAUSTED: there are workers, but all are full, suspect or have just refused: try again
// when one reports. OUT_OF_RANGE: no worker's KV could ever hold the request. `draw` is any random
// number.
absl::StatusOr<Placement> Place(const PlacementRequest& request,
                                absl::Span<const WorkerLoad> workers, uint64_t draw);

}  // namespace baton::router
