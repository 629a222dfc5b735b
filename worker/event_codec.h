// Between the wire and our own structs: what workers say to routers, and what routers ask of workers.
//
// Decoding checks everything: whatever bytes come, the result is a struct that keeps its promises or an INVALID_ARGUMENT
// that names field, value and legal range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/attach_service.pb.h"
#include "baton/v1/decode_worker_service.pb.h"
#include "baton/v1/prefill_worker_service.pb.h"
#include "baton/v1/worker_types.pb.h"
#include "kvstore/compatibility.h"
#include "kvstore/handoff.h"
#include "worker/engine_request.h"
#include "worker/router_link.h"
#include "worker/worker_hello.h"

namespace baton::worker {

absl::StatusOr<AttemptKey> DecodeAttemptKey(const v1::RequestKey& wire);
absl::StatusOr<EngineRequest> DecodeEngineRequest(const v1::EngineRequest& wire,
                                                  const RequestLimits& limits);
// Absent: both fields are empty, nothing is handed on.
absl::StatusOr<std::optional<kvstore::HandoffPeer>> DecodeHandoffPeer(
    const v1::PrefillRequest& wire);
// 16 bytes; `field` is for the message.
absl::StatusOr<base::Id128> DecodeId(absl::string_view field, absl::string_view bytes);

// Adds to `wire`, which may hold a cleared event's memory.
void EncodeTokenEvent(const TokenEvent& event, v1::TokenEvent& wire);
// Not less than the event's size on the wire, nor much more.
size_t EncodedBytesBound(const TokenEvent& event);

void EncodeHello(const WorkerHello& hello, v1::WorkerHello& wire);
void EncodeLoad(const WorkerLoad& load, v1::LoadReport& wire);
void EncodeCompatibility(const kvstore::Compatibility& compatibility, v1::Compatibility& wire);

}  // namespace baton::worker
