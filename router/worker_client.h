// Prefill and Admit over gRPC: one channel to one worker, calls that answer by callback.
//
// Any thread. Every call has a deadline (`call_timeout`, or the request's own when sooner).
// CallGroup counts calls in flight over all clients, so that shutdown can cancel and await them.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "router/worker_registry.h"

namespace baton::router {

// Calls in flight. Outlives their clients; WaitUntilIdle() before what the callbacks use goes.
class CallGroup {
 public:
  void Add(grpc::ClientContext* context);
  void Remove(grpc::ClientContext* context);
  // Cancels what is in flight and waits until each callback has run. New calls must have ended
  // before.
  void CancelAndWait();

 private:
  base::Mutex mutex_;
  base::CondVar idle_;
  absl::flat_hash_set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

// `group` outlives the client and its calls.
std::shared_ptr<WorkerCalls> ConnectToWorker(const std::string& address, int64_t message_bytes_max,
                                             absl::Duration call_timeout, CallGroup& group);

}  // namespace baton::router
