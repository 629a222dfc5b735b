// What the service needs of the engine.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "kvstore/handoff.h"
#include "worker/engine_request.h"

namespace baton::prefill_worker {

struct PrefillRequest {
  worker::EngineRequest request;
  // Who takes the KV. Absent: nobody; then exactly one token is wanted.
  std::optional<kvstore::HandoffPeer> peer;
};

// Thread-safe; no call blocks.
class PrefillQueue {
 public:
  virtual ~PrefillQueue() = default;

  // Takes a prompt; what becomes of it is told to its router by events. Codes as of PrefillWorkerService.Prefill.
  virtual absl::Status Submit(PrefillRequest request) = 0;
};

}  // namespace baton::prefill_worker
