#include "tools/bench/stream_load_client.h"

#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/grpc_server.h"
#include "base/grpc_status.h"
#include "base/mutex.h"
#include "baton/v1/inference_service.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace baton::tools {
namespace {

// Counts streams down.
class Gate {
 public:
  explicit Gate(uint32_t count) : count_(count) {}
  void Arrive() {
    base::MutexLock lock(mutex_);
    if (--count_ == 0) all_done_.NotifyAll();
  }
  void Wait() {
    base::MutexLock lock(mutex_);
    while (count_ > 0) all_done_.Wait(mutex_);
  }

 private:
  base::Mutex mutex_;
  base::CondVar all_done_;
  uint32_t count_ ABSL_GUARDED_BY(mutex_);
};

// One stream. Its fields are gRPC's until it arrives at the gate.
class Stream final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Stream(v1::InferenceService::Stub& stub, const StreamLoad& load, uint64_t seed, Gate& gate)
      : gate_(gate) {
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<uint32_t> token(load.vocabulary_size / 4, load.vocabulary_size - 1);
    for (uint32_t i = 0; i < load.input_tokens; ++i) {
      request_.mutable_token_ids()->add_ids(token(random));
    }
    request_.mutable_stop_conditions()->set_max_tokens(load.output_tokens);
    request_.mutable_stop_conditions()->set_ignore_eos(true);
    stub.async()->Generate(&context_, &request_, this);
  }

  void Start() {
    started_ = last_ = absl::Now();
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const absl::Time now = absl::Now();
    if (response_.token_ids_size() > 0) {
      if (times_.tokens == 0) {
        times_.first_token = now - started_;
      } else {
        times_.gaps.push_back(now - last_);
      }
      last_ = now;
      times_.tokens += static_cast<uint32_t>(response_.token_ids_size());
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    status_ = base::FromGrpcStatus(status);
    times_.total = absl::Now() - started_;
    gate_.Arrive();
  }

  const absl::Status& status() const { return status_; }
  StreamTimes& times() { return times_; }

 private:
  Gate& gate_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  absl::Time started_, last_;
  absl::Status status_;
  StreamTimes times_;
};

}  // namespace

absl::StatusOr<std::vector<StreamTimes>> RunStreams(const StreamLoad& load) {
  auto stub = v1::InferenceService::NewStub(base::OpenChannel(load.router));
  Gate gate(load.streams);
  std::vector<std::unique_ptr<Stream>> streams;
  for (uint32_t i = 0; i < load.streams; ++i) {
    streams.push_back(std::make_unique<Stream>(*stub, load, load.seed * 1000003 + i, gate));
  }
  for (const auto& stream : streams) stream->Start();
  gate.Wait();
  std::vector<StreamTimes> times;
  for (const auto& stream : streams) {
    if (!stream->status().ok()) return stream->status();
    if (stream->times().tokens != load.output_tokens) {
      return absl::InternalError(absl::StrCat("a stream ended with ", stream->times().tokens, " of ",
                                              load.output_tokens, " tokens"));
    }
    times.push_back(std::move(stream->times()));
  }
  return times;
}

absl::StatusOr<uint32_t> VocabularySize(const std::string& router) {
  auto stub = v1::InferenceService::NewStub(base::OpenChannel(router));
  v1::ListModelsResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->ListModels(&context, v1::ListModelsRequest(), &response);
  if (!status.ok()) return base::FromGrpcStatus(status);
  if (response.models_size() != 1) return absl::FailedPreconditionError("need exactly one model");
  return response.models(0).vocabulary_size();
}

}  // namespace baton::tools
