// DecodeWorkerService: a thin skin over DecodeQueue.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/decode_worker_service.grpc.pb.h"
#include "decode_worker/decode_queue.h"
#include "worker/engine_request.h"

namespace baton::decode_worker {

class DecodeService final : public v1::DecodeWorkerService::CallbackService {
 public:
  // Borrows the queue, which outlives it.
  DecodeService(DecodeQueue& queue, const worker::RequestLimits& limits)
      : queue_(queue), limits_(limits) {}

  grpc::ServerUnaryReactor* Admit(grpc::CallbackServerContext* context,
                                  const v1::AdmitRequest* wire,
                                  v1::AdmitResponse* response) override;

 private:
  absl::StatusOr<uint32_t> Take(const v1::AdmitRequest& wire);

  DecodeQueue& queue_;
  const worker::RequestLimits limits_;
};

}  // namespace baton::decode_worker
