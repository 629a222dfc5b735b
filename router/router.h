// A whole router in one object: everything it is made of, and the order it starts and stops in.
//
//   clients ─▶ InferenceService ─▶ TextPool ─▶ lanes (RequestTracker each) ─▶ WorkerCalls: Admit,
//   Prefill
//                    ▲                           │        ▲
//                    └────── AnswerStream ◀──────┘        └── AttachService ◀─ workers
//
// main.cc makes one from flags and a model file; so does whatever hosts all roles in one process.
// Holds soft state only.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/grpc_server.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "router/answer_buffers.h"
#include "router/attach_service.h"
#include "router/inference_service.h"
#include "router/request_handler.h"
#include "router/request_tracker.h"
#include "router/router_config.h"
#include "router/router_probe.h"
#include "router/text_pool.h"
#include "router/work_lane.h"
#include "router/worker_client.h"
#include "router/worker_registry.h"

namespace baton::router {

class Router final : public RequestHandler, private WorkerEvents {
 public:
  // Listens and serves. `metrics` outlives the router. INVALID_ARGUMENT: the config; UNAVAILABLE: a
  // port is in use.
  static absl::StatusOr<std::unique_ptr<Router>> Start(const RouterConfig& config,
                                                       std::shared_ptr<const ServedModel> model,
                                                       base::Metrics& metrics);
  ~Router() override;  // Stop().

  std::string client_address() const { return client_server_->address(); }
  std::string worker_address() const { return worker_server_->address(); }

  // Refuses new requests (health says NOT_SERVING) and waits until running ones have ended, at most
  // drain_timeout. True: all have.
  bool Drain();
  // Ends what is left with UNAVAILABLE, and all threads. Idempotent.
  void Stop();

  // --- RequestHandler ---
  const ServedModel& model() const override { return *model_; }
  uint32_t worker_context_tokens() const override { return registry_.context_tokens(); }
  absl::Status Submit(RequestSpec spec, std::shared_ptr<AnswerSink> sink) override;
  void NoteRefused(const absl::Status& why) override;
  void Cancel(const base::Id128& id, const absl::Status& why) override;
  absl::Status Encode(const std::string& model_name, Prompt prompt, Encoded done) override;
  absl::Status Decode(const std::string& model_name, std::vector<uint32_t> ids,
                      Decoded done) override;
  ClusterStatus Status() const override;

 private:
  // A relay thread and the requests that live on it.
  struct Lane {
    explicit Lane(const std::string& name) : work(name, [this] { tracker->OnAlarm(); }) {}
    WorkLane work;
    std::unique_ptr<RequestTracker> tracker;  // Of the lane's thread.
    std::atomic<bool> woken{false};           // A ServeQueue() is posted and has not begun.
  };

  Router(const RouterConfig& config, std::shared_ptr<const ServedModel> model,
         base::Metrics& metrics);
  void StartLanes();
  absl::Status StartServers();

  // --- WorkerEvents ---
  absl::Status OnAttach(const WorkerHello& hello,
                        std::shared_ptr<WorkerConnection> connection) override;
  void OnStepBatch(std::shared_ptr<const StepBatch> batch) override;
  void OnLoadReport(const base::Id128& worker, const LoadReport& report) override;
  void OnDraining(const base::Id128& worker) override;
  void OnDetach(const base::Id128& worker, const WorkerConnection& connection) override;

  absl::Status CheckModel(const WorkerHello& hello) const;
  void LoseWorker(const base::Id128& worker, const WorkerConnection& connection,
                  absl::string_view why);
  Lane& LaneOf(const base::Id128& request);
  // Lanes with waiting requests try again to place them.
  void WakeLanes();
  // Ten times a second: silent workers, gauges.
  void Watch();

  absl::Status TakeOn(RequestSpec& spec);
  void Prepare(RequestSpec spec, std::shared_ptr<AnswerSink> sink);
  // A request ended before or on its lane.
  void RequestEnded();

  const RouterConfig config_;
  const std::shared_ptr<const ServedModel> model_;
  const base::Id128 incarnation_ = base::Id128::Random();
  const base::SystemClock clock_;
  const absl::Time started_;
  RouterProbe probe_;
  WorkerRegistry registry_;
  CallGroup calls_;
  AnswerBuffers buffers_;
  std::atomic<int64_t> queue_tokens_{0};
  std::atomic<bool> draining_{false};

  mutable base::Mutex mutex_;
  base::CondVar idle_;
  int64_t live_ ABSL_GUARDED_BY(mutex_) = 0;  // Submitted and not ended.

  std::vector<std::unique_ptr<Lane>> lanes_;
  TextPool text_pool_;
  std::unique_ptr<WorkLane> watch_;
  InferenceService inference_service_;
  AttachService attach_service_;
  std::unique_ptr<base::GrpcServer> worker_server_;
  std::unique_ptr<base::GrpcServer> client_server_;
  bool stopped_ = false;
};

}  // namespace baton::router
