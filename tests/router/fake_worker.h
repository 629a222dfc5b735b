// A worker without a model: real gRPC towards the router, answers from a script. Both roles.
//
// By itself it plays by the rules: a prefill worker answers Prefill with token 1 and its report; a
// decode worker gives each admitted request one token a step, token 1 repeated, until max_tokens or
// a stop token. A test may take any part over.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/grpc_server.h"
#include "base/id128.h"
#include "base/mutex.h"
#include "baton/v1/attach_service.grpc.pb.h"
#include "baton/v1/decode_worker_service.grpc.pb.h"
#include "baton/v1/prefill_worker_service.grpc.pb.h"

namespace baton::router {

struct FakeWorkerOptions {
  bool decodes = false;  // Else it prefills.
  bool local_prefill = false;
  uint32_t running_sequences_max = 64;
  uint32_t context_tokens = 1024;
  uint32_t vocabulary_size = 258;
  std::string model_digest = "digest of fake";
  std::string compatibility = "c";
  std::vector<uint32_t> script;  // The answer to everything; after it 'a', 'b', ...
  absl::Duration step = absl::Milliseconds(1);
  bool answers = true;  // Of itself; else the test sends every event.
  bool reports = true;  // Ten times a second; the first report is always sent.
};

class FakeWorker final : public v1::PrefillWorkerService::CallbackService,
                         public v1::DecodeWorkerService::CallbackService {
 public:
  FakeWorker(FakeWorkerOptions options, const std::string& router_address);
  ~FakeWorker() override;

  // As when the process is killed: no goodbye.
  void Kill();
  // No reports and no steps any more, while connections stay.
  void Freeze() { frozen_ = true; }

  // What Prefill and Admit answer; OK if not set.
  void SetAnswerToCalls(grpc::Status status);
  // Calls are not answered while held; each gets the answer that was set when it came.
  void HoldCalls(bool held);
  void Send(const v1::StepEvents& events);
  void Send(const v1::TokenEvent& event);
  void Report(const v1::LoadReport& report);
  void AnnounceDraining();

  // The token it gives at an output position.
  uint32_t TokenAt(uint32_t position) const;
  v1::TokenEvent FirstTokenOf(const v1::EngineRequest& request) const;

  // Wait for what must come; false or nothing: it did not, in ten seconds.
  bool WaitForCalls(size_t count);
  bool WaitForCancel(const v1::RequestKey& key);
  // How the Attach stream ended.
  grpc::Status WaitForEnd();

  std::vector<v1::EngineRequest> calls() const;
  v1::EngineRequest FirstCall();  // Waits for it.
  bool was_cancelled(const v1::RequestKey& key) const;
  const std::string& incarnation() const { return incarnation_; }
  const std::string& address() const { return address_; }

 private:
  struct Running {
    v1::EngineRequest request;
    uint32_t position = 0;
  };

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::PrefillRequest* request,
                                    v1::PrefillResponse* response) override;
  grpc::ServerUnaryReactor* Admit(grpc::CallbackServerContext* context,
                                  const v1::AdmitRequest* request,
                                  v1::AdmitResponse* response) override;
  grpc::Status TakeCall(const v1::EngineRequest& request);
  void Read();
  void Run();
  void Step();
  v1::WorkerHello Hello() const;
  void Write(const v1::AttachRequest& message);

  const FakeWorkerOptions options_;
  const std::string incarnation_ = base::Id128::Random().ToBytes();
  std::string address_;
  std::unique_ptr<base::GrpcServer> server_;
  std::unique_ptr<v1::AttachService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachResponse>> stream_;
  std::atomic<bool> frozen_{false};
  std::atomic<bool> stopping_{false};

  base::Mutex write_mutex_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<v1::EngineRequest> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RequestKey> cancels_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Running> running_ ABSL_GUARDED_BY(mutex_);
  grpc::Status answer_to_calls_ ABSL_GUARDED_BY(mutex_);
  bool calls_held_ ABSL_GUARDED_BY(mutex_) = false;
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mutex_);
  uint64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread reader_;
  std::thread runner_;
};

}  // namespace baton::router
