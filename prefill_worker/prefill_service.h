// PrefillWorkerService: a thin skin over PrefillQueue.
#pragma once

#include "baton/v1/prefill_worker_service.grpc.pb.h"
#include "prefill_worker/prefill_queue.h"
#include "worker/engine_request.h"

namespace baton::prefill_worker {

class PrefillService final : public v1::PrefillWorkerService::CallbackService {
 public:
  // Borrows the queue, which outlives it.
  PrefillService(PrefillQueue& queue, const worker::RequestLimits& limits)
      : queue_(queue), limits_(limits) {}

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::PrefillRequest* wire,
                                    v1::PrefillResponse* response) override;

 private:
  absl::Status Take(const v1::PrefillRequest& wire);

  PrefillQueue& queue_;
  const worker::RequestLimits limits_;
};

}  // namespace baton::prefill_worker
