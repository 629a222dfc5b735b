// What the service needs of the engine.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/id128.h"
#include "worker/engine_request.h"

namespace baton::decode_worker {

struct DecodeRequest {
  worker::EngineRequest request;
  // Who hands the KV over. Absent: nobody; the prompt is computed here.
  std::optional<base::Id128> prefill_incarnation;
};

// Thread-safe; no call blocks.
class DecodeQueue {
 public:
  virtual ~DecodeQueue() = default;

  // Reserves blocks for the prompt and some of the answer, and returns how many. What becomes of the request is told to
  // its router by events. Codes as of DecodeWorkerService.Admit.
  virtual absl::StatusOr<uint32_t> Admit(DecodeRequest request) = 0;
};

}  // namespace baton::decode_worker
