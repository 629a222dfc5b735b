// A decode worker: engine, link receiver, service, server and attach client, and the order they start and stop in.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/grpc_server.h"
#include "base/metrics.h"
#include "decode_worker/decode_engine.h"
#include "decode_worker/decode_service.h"
#include "kvstore/transfer/link_receiver.h"
#include "kvstore/transfer/loopback_transport.h"
#include "worker/attach_client.h"
#include "worker/worker.h"
#include "worker/worker_config.h"
#include "worker/worker_model.h"
#include "worker/worker_parts.h"
#include "worker/worker_probe.h"

namespace baton::decode_worker {

class DecodeWorker final : public worker::Worker {
 public:
  // `model`, `metrics` and `loopback` outlive it; `loopback` is null unless a prefill worker shares the process. Errors as
  // of WorkerParts::Make(); UNAVAILABLE when the port cannot be had.
  static absl::StatusOr<std::unique_ptr<DecodeWorker>> Start(const worker::WorkerConfig& config,
                                                             const worker::WorkerModel& model,
                                                             base::Metrics& metrics,
                                                             kvstore::LoopbackRegistry* loopback);
  ~DecodeWorker() override;

  const std::string& address() const override { return address_; }
  const base::Id128& incarnation() const override { return parts_.incarnation; }
  worker::WorkerLoad load() const override { return engine_.load(); }
  bool Drain(absl::Duration timeout) override;

 private:
  DecodeWorker(const worker::WorkerConfig& config, const worker::WorkerModel& model,
               base::Metrics& metrics, worker::WorkerParts parts);

  // In the order of their making; each borrows of those above.
  worker::WorkerParts parts_;
  worker::WorkerProbe probe_;
  kvstore::HandoffProbe handoff_probe_;
  DecodeEngine engine_;
  DecodeService service_;
  std::unique_ptr<kvstore::LinkReceiver> receiver_;
  worker::AttachClient attach_;
  std::unique_ptr<base::GrpcServer> server_;
  std::string address_;
  bool drained_ = false;
};

}  // namespace baton::decode_worker
