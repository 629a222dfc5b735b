#include "router/worker_client.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/grpc_server.h"
#include "base/grpc_status.h"
#include "baton/v1/decode_worker_service.grpc.pb.h"
#include "baton/v1/prefill_worker_service.grpc.pb.h"
#include "router/worker_codec.h"

namespace baton::router {
namespace {

// One unary call, alive until its callback has run.
template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
  WorkerCalls::Done done;
};

// Calls keep it alive: a worker may be detached while one is in flight.
class GrpcWorkerCalls final : public WorkerCalls,
                              public std::enable_shared_from_this<GrpcWorkerCalls> {
 public:
  GrpcWorkerCalls(std::shared_ptr<grpc::Channel> channel, absl::Duration call_timeout,
                  CallGroup& group)
      : prefill_stub_(v1::PrefillWorkerService::NewStub(channel)),
        decode_stub_(v1::DecodeWorkerService::NewStub(channel)),
        call_timeout_(call_timeout),
        group_(group) {}

  void Prefill(const EngineRequest& request, const WorkerHello* decode, Done done) override {
    auto call = NewCall<v1::PrefillRequest, v1::PrefillResponse>(request, std::move(done));
    if (decode != nullptr) {
      call->request.set_decode_address(decode->address);
      call->request.set_decode_incarnation(decode->incarnation.ToBytes());
    }
    prefill_stub_->async()->Prefill(&call->context, &call->request, &call->response,
                                    [self = shared_from_this(), call](const grpc::Status& status) {
                                      self->End(*call, status);
                                    });
  }

  void Admit(const EngineRequest& request, const WorkerHello* prefill, Done done) override {
    auto call = NewCall<v1::AdmitRequest, v1::AdmitResponse>(request, std::move(done));
    if (prefill != nullptr) {
      call->request.set_prefill_incarnation(prefill->incarnation.ToBytes());
    }
    decode_stub_->async()->Admit(&call->context, &call->request, &call->response,
                                 [self = shared_from_this(), call](const grpc::Status& status) {
                                   self->End(*call, status);
                                 });
  }

 private:
  template <typename Request, typename Response>
  std::shared_ptr<Call<Request, Response>> NewCall(const EngineRequest& request, Done done) {
    const absl::Time now = absl::Now();
    auto call = std::make_shared<Call<Request, Response>>();
    call->context.set_deadline(absl::ToChronoTime(std::min(request.deadline, now + call_timeout_)));
    call->done = std::move(done);
    ToProto(request, now, *call->request.mutable_request());
    group_.Add(&call->context);
    return call;
  }

  template <typename Call>
  void End(Call& call, const grpc::Status& status) {
    call.done(base::FromGrpcStatus(status));
    call.done = nullptr;
    group_.Remove(&call.context);
  }

  const std::unique_ptr<v1::PrefillWorkerService::Stub> prefill_stub_;
  const std::unique_ptr<v1::DecodeWorkerService::Stub> decode_stub_;
  const absl::Duration call_timeout_;
  CallGroup& group_;
};

}  // namespace

void CallGroup::Add(grpc::ClientContext* context) {
  base::MutexLock lock(mutex_);
  contexts_.insert(context);
}

void CallGroup::Remove(grpc::ClientContext* context) {
  base::MutexLock lock(mutex_);
  contexts_.erase(context);
  if (contexts_.empty()) idle_.NotifyAll();
}

void CallGroup::CancelAndWait() {
  base::MutexLock lock(mutex_);
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
  while (!contexts_.empty()) idle_.Wait(mutex_);
}

std::shared_ptr<WorkerCalls> ConnectToWorker(const std::string& address, int64_t message_bytes_max,
                                             absl::Duration call_timeout, CallGroup& group) {
  return std::make_shared<GrpcWorkerCalls>(base::OpenChannel(address, message_bytes_max),
                                           call_timeout, group);
}

}  // namespace baton::router
