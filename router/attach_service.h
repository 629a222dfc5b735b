// The router's end of the Attach streams: events and load up, cancels down. The worker port's only
// service.
//
// Thin: reactors translate and hand over; they never block, and take no decision but to end a
// stream that breaks the protocol, falls silent or cannot take its commands. Two bounds keep a
// stream small: kBatchesInFlightMax step batches that the lanes have not finished (beyond it
// nothing is read, and the worker coalesces), kCommandsMax commands that the worker has not taken
// (beyond it the stream is ended with UNAVAILABLE).
#pragma once

#include <memory>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "baton/v1/attach_service.grpc.pb.h"
#include "router/worker_registry.h"

namespace baton::router {

class AttachStream;

// What becomes of what workers say. Any thread of gRPC; never blocks. Calls of one worker come one
// after another.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // Errors as AttachService.Attach names them. After OK, exactly one OnDetach() follows.
  virtual absl::Status OnAttach(const WorkerHello& hello,
                                std::shared_ptr<WorkerConnection> connection) = 0;
  virtual void OnStepBatch(std::shared_ptr<const StepBatch> batch) = 0;
  virtual void OnLoadReport(const base::Id128& worker, const LoadReport& report) = 0;
  virtual void OnDraining(const base::Id128& worker) = 0;
  virtual void OnDetach(const base::Id128& worker, const WorkerConnection& connection) = 0;
};

class AttachService final : public v1::AttachService::CallbackService {
 public:
  // `events` outlives the service's streams.
  AttachService(const base::Id128& router_incarnation, WorkerEvents& events);
  ~AttachService() override;

  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* Attach(
      grpc::CallbackServerContext* context) override;

  // Ends every stream, now and in future, with UNAVAILABLE.
  void Close();

 private:
  friend class AttachStream;
  void Remove(AttachStream& stream);

  const base::Id128 router_incarnation_;
  WorkerEvents& events_;
  base::Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<AttachStream>> streams_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::router
