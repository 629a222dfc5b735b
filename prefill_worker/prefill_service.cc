#include "prefill_worker/prefill_service.h"

#include <utility>

#include "base/grpc_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/event_codec.h"

namespace baton::prefill_worker {

grpc::ServerUnaryReactor* PrefillService::Prefill(grpc::CallbackServerContext* context,
                                                  const v1::PrefillRequest* wire,
                                                  v1::PrefillResponse*) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(base::ToGrpcStatus(Take(*wire)));
  return reactor;
}

absl::Status PrefillService::Take(const v1::PrefillRequest& wire) {
  PrefillRequest request;
  ASSIGN_OR_RETURN(request.request, worker::DecodeEngineRequest(wire.request(), limits_));
  ASSIGN_OR_RETURN(request.peer, worker::DecodeHandoffPeer(wire));
  const worker::AttemptKey key = request.request.key;
  const size_t tokens = request.request.tokens.size();
  const absl::Status taken = queue_.Submit(std::move(request));
  if (taken.ok()) {
    LOG(INFO) << "prompt queued" << base::LogField("request", key)
              << base::LogField("tokens", tokens);
  }
  return taken;
}

}  // namespace baton::prefill_worker
