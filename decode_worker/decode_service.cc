#include "decode_worker/decode_service.h"

#include <utility>

#include "base/grpc_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/event_codec.h"

namespace baton::decode_worker {

grpc::ServerUnaryReactor* DecodeService::Admit(grpc::CallbackServerContext* context,
                                               const v1::AdmitRequest* wire,
                                               v1::AdmitResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<uint32_t> blocks = Take(*wire);
  if (blocks.ok()) response->set_blocks_reserved(*blocks);
  reactor->Finish(base::ToGrpcStatus(blocks.status()));
  return reactor;
}

absl::StatusOr<uint32_t> DecodeService::Take(const v1::AdmitRequest& wire) {
  DecodeRequest request;
  ASSIGN_OR_RETURN(request.request, worker::DecodeEngineRequest(wire.request(), limits_));
  if (!wire.prefill_incarnation().empty()) {
    ASSIGN_OR_RETURN(request.prefill_incarnation,
                     worker::DecodeId("prefill_incarnation", wire.prefill_incarnation()));
  }
  const worker::AttemptKey key = request.request.key;
  const absl::StatusOr<uint32_t> blocks = queue_.Admit(std::move(request));
  if (blocks.ok()) {
    LOG(INFO) << "request admitted" << base::LogField("request", key)
              << base::LogField("blocks_reserved", *blocks);
  }
  return blocks;
}

}  // namespace baton::decode_worker
