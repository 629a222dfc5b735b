// A prefill worker: engine, link sender, service, server and attach client, and the order they start and stop in.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/grpc_server.h"
#include "base/metrics.h"
#include "kvstore/transfer/link_sender.h"
#include "kvstore/transfer/loopback_transport.h"
#include "prefill_worker/prefill_engine.h"
#include "prefill_worker/prefill_service.h"
#include "worker/attach_client.h"
#include "worker/worker.h"
#include "worker/worker_config.h"
#include "worker/worker_model.h"
#include "worker/worker_parts.h"
#include "worker/worker_probe.h"

namespace baton::prefill_worker {

class PrefillWorker final : public worker::Worker {
 public:
  // `model`, `metrics` and `loopback` outlive it; `loopback` is null unless a decode worker shares the process. Errors as
  // of WorkerParts::Make(); UNAVAILABLE when the port, or shared memory that is asked for, cannot be had.
  static absl::StatusOr<std::unique_ptr<PrefillWorker>> Start(const worker::WorkerConfig& config,
                                                              const worker::WorkerModel& model,
                                                              base::Metrics& metrics,
                                                              kvstore::LoopbackRegistry* loopback);
  ~PrefillWorker() override;

  const std::string& address() const override { return address_; }
  const base::Id128& incarnation() const override { return parts_.incarnation; }
  worker::WorkerLoad load() const override { return engine_.load(); }
  bool Drain(absl::Duration timeout) override;

 private:
  PrefillWorker(const worker::WorkerConfig& config, const worker::WorkerModel& model,
                base::Metrics& metrics, worker::WorkerParts parts);

  // In the order of their making; each borrows of those above.
  worker::WorkerParts parts_;
  worker::WorkerProbe probe_;
  kvstore::HandoffProbe handoff_probe_;
  PrefillEngine engine_;
  PrefillService service_;
  std::unique_ptr<kvstore::LinkSender> sender_;
  worker::AttachClient attach_;
  std::unique_ptr<base::GrpcServer> server_;
  std::string address_;
  bool drained_ = false;
};

}  // namespace baton::prefill_worker
