#include "tests/router/fake_worker.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"

namespace baton::router {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kReportPeriod = absl::Milliseconds(100);

bool SameKey(const v1::RequestKey& a, const v1::RequestKey& b) {
  return a.request_id() == b.request_id() && a.attempt() == b.attempt();
}

bool Stops(const v1::EngineRequest& request, uint32_t token) {
  const auto& stops = request.stop_token_ids();
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

// Waits until `done`, for so long as a broken test may take. Not analysed: that `mutex` is the one that `done` requires is
// beyond clang.
template <typename Done>
bool WaitUntil(base::Mutex& mutex, base::CondVar& changed,
               Done done) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const absl::Time until = absl::Now() + kPatience;
  base::MutexLock lock(mutex);
  while (!done()) {
    if (absl::Now() >= until) return false;
    changed.WaitFor(mutex, until - absl::Now());
  }
  return true;
}

}  // namespace

FakeWorker::FakeWorker(FakeWorkerOptions options, const std::string& router_address)
    : options_(std::move(options)) {
  auto server = base::GrpcServer::Start(
      {.services = {static_cast<v1::PrefillWorkerService::CallbackService*>(this),
                    static_cast<v1::DecodeWorkerService::CallbackService*>(this)}});
  CHECK_OK(server.status());
  server_ = *std::move(server);
  address_ = server_->address();
  stub_ = v1::AttachService::NewStub(base::OpenChannel(router_address));
  stream_ = stub_->Attach(&context_);
  v1::AttachRequest hello;
  *hello.mutable_hello() = Hello();
  Write(hello);
  reader_ = std::thread([this] { Read(); });
  WaitUntil(mutex_, changed_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return welcomed_ || ended_; });
  Report({});
  runner_ = std::thread([this] { Run(); });
}

FakeWorker::~FakeWorker() {
  stopping_ = true;
  context_.TryCancel();
  reader_.join();
  runner_.join();
  server_->Stop(absl::ZeroDuration());
}

void FakeWorker::Kill() {
  frozen_ = true;
  context_.TryCancel();
  server_->Stop(absl::ZeroDuration());
}

v1::WorkerHello FakeWorker::Hello() const {
  v1::WorkerHello hello;
  hello.set_incarnation(incarnation_);
  hello.set_role(options_.decodes ? v1::WORKER_ROLE_DECODE : v1::WORKER_ROLE_PREFILL);
  hello.set_address(address_);
  hello.set_model_name("fake");
  hello.mutable_compatibility()->set_model_digest(options_.model_digest);
  hello.mutable_compatibility()->set_digest(options_.compatibility);
  v1::KvLayout& layout = *hello.mutable_compatibility()->mutable_layout();
  layout.set_layers(2);
  layout.set_kv_heads(2);
  layout.set_head_dim(8);
  layout.set_block_tokens(16);
  layout.set_kv_type(v1::KV_TYPE_F32);
  hello.set_context_tokens(options_.context_tokens);
  hello.set_vocabulary_size(options_.vocabulary_size);
  hello.set_blocks_total(4096);
  hello.set_running_sequences_max(options_.running_sequences_max);
  hello.set_chunk_tokens(512);
  hello.set_cpu_level("reference");
  hello.set_local_prefill(options_.local_prefill);
  return hello;
}

void FakeWorker::SetAnswerToCalls(grpc::Status status) {
  base::MutexLock lock(mutex_);
  answer_to_calls_ = std::move(status);
}

void FakeWorker::HoldCalls(bool held) {
  base::MutexLock lock(mutex_);
  calls_held_ = held;
  changed_.NotifyAll();
}

void FakeWorker::Write(const v1::AttachRequest& message) {
  base::MutexLock lock(write_mutex_);
  stream_->Write(message);
}

void FakeWorker::Send(const v1::StepEvents& events) {
  v1::AttachRequest message;
  *message.mutable_step_events() = events;
  Write(message);
}

void FakeWorker::Send(const v1::TokenEvent& event) {
  v1::StepEvents events;
  *events.add_events() = event;
  Send(events);
}

void FakeWorker::Report(const v1::LoadReport& report) {
  v1::AttachRequest message;
  *message.mutable_load_report() = report;
  {
    base::MutexLock lock(mutex_);
    message.mutable_load_report()->set_sequence_number(++reports_);
    message.mutable_load_report()->set_running_sequences(static_cast<uint32_t>(running_.size()));
  }
  if (report.blocks_free() == 0) message.mutable_load_report()->set_blocks_free(4096);
  Write(message);
}

void FakeWorker::AnnounceDraining() {
  v1::AttachRequest message;
  message.mutable_draining();
  Write(message);
}

uint32_t FakeWorker::TokenAt(uint32_t position) const {
  return position < options_.script.size() ? options_.script[position] : 'a' + position % 26;
}

v1::TokenEvent FakeWorker::FirstTokenOf(const v1::EngineRequest& request) const {
  v1::TokenEvent event;
  *event.mutable_key() = request.key();
  event.add_tokens(TokenAt(0));
  if (request.max_tokens() == 1) event.set_finish_reason(v1::FINISH_REASON_LENGTH);
  if (Stops(request, TokenAt(0))) event.set_finish_reason(v1::FINISH_REASON_STOP);
  event.mutable_prefill_report()->set_cached_tokens(16);
  event.mutable_prefill_report()->mutable_queue()->set_nanos(1000000);
  event.mutable_prefill_report()->mutable_compute()->set_nanos(2000000);
  return event;
}

bool FakeWorker::WaitForCalls(size_t count) {
  return WaitUntil(mutex_, changed_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.size() >= count; });
}

bool FakeWorker::WaitForCancel(const v1::RequestKey& key) {
  return WaitUntil(mutex_, changed_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::any_of(cancels_.begin(), cancels_.end(),
                       [&](const v1::RequestKey& cancel) { return SameKey(cancel, key); });
  });
}

grpc::Status FakeWorker::WaitForEnd() {
  if (!WaitUntil(mutex_, changed_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; })) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "the stream did not end");
  }
  base::MutexLock lock(mutex_);
  return end_;
}

std::vector<v1::EngineRequest> FakeWorker::calls() const {
  base::MutexLock lock(mutex_);
  return calls_;
}

v1::EngineRequest FakeWorker::FirstCall() {
  CHECK(WaitForCalls(1));
  return calls().front();
}

bool FakeWorker::was_cancelled(const v1::RequestKey& key) const {
  base::MutexLock lock(mutex_);
  return std::any_of(cancels_.begin(), cancels_.end(),
                     [&](const v1::RequestKey& cancel) { return SameKey(cancel, key); });
}

grpc::Status FakeWorker::TakeCall(const v1::EngineRequest& request) {
  base::MutexLock lock(mutex_);
  calls_.push_back(request);
  changed_.NotifyAll();
  const grpc::Status answer = answer_to_calls_;
  while (calls_held_) changed_.Wait(mutex_);
  if (!answer.ok()) return answer;
  if (options_.decodes && options_.answers && !Stops(request, TokenAt(0))) {
    running_[request.key().request_id()] = {.request = request};
  }
  return grpc::Status::OK;
}

grpc::ServerUnaryReactor* FakeWorker::Prefill(grpc::CallbackServerContext* context,
                                              const v1::PrefillRequest* request,
                                              v1::PrefillResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status status = TakeCall(request->request());
  if (status.ok() && options_.answers) Send(FirstTokenOf(request->request()));
  reactor->Finish(status);
  return reactor;
}

grpc::ServerUnaryReactor* FakeWorker::Admit(grpc::CallbackServerContext* context,
                                            const v1::AdmitRequest* request,
                                            v1::AdmitResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status status = TakeCall(request->request());
  response->set_blocks_reserved(1);
  reactor->Finish(status);
  return reactor;
}

void FakeWorker::Read() {
  v1::AttachResponse command;
  while (stream_->Read(&command)) {
    base::MutexLock lock(mutex_);
    if (command.has_welcome()) welcomed_ = true;
    if (command.has_cancel()) {
      cancels_.push_back(command.cancel().key());
      running_.erase(command.cancel().key().request_id());
    }
    changed_.NotifyAll();
  }
  grpc::Status end = stream_->Finish();
  base::MutexLock lock(mutex_);
  ended_ = true;
  end_ = std::move(end);
  changed_.NotifyAll();
}

void FakeWorker::Run() {
  absl::Time next_step = absl::Now();
  absl::Time next_report = absl::Now() + kReportPeriod;
  while (!stopping_) {
    next_step += options_.step;
    absl::SleepFor(next_step - absl::Now());
    if (frozen_) continue;
    Step();
    if (options_.reports && absl::Now() >= next_report) {
      next_report += kReportPeriod;
      Report({});
    }
  }
}

// One token for every running request; the first event repeats token 1.
void FakeWorker::Step() {
  v1::AttachRequest message;
  v1::StepEvents& events = *message.mutable_step_events();
  {
    base::MutexLock lock(mutex_);
    for (auto next = running_.begin(); next != running_.end();) {
      Running& running = next->second;
      v1::TokenEvent& event = *events.add_events();
      *event.mutable_key() = running.request.key();
      event.set_position(running.position);
      if (running.position == 0) {
        event.add_tokens(TokenAt(running.position++));
        event.mutable_decode_report()->mutable_handoff()->set_nanos(3000000);
        event.mutable_decode_report()->mutable_first_decode()->set_nanos(4000000);
      }
      bool ended = running.position >= running.request.max_tokens();
      if (!ended) {
        const uint32_t token = TokenAt(running.position++);
        event.add_tokens(token);
        ended = running.position >= running.request.max_tokens();
        if (ended) event.set_finish_reason(v1::FINISH_REASON_LENGTH);
        if (Stops(running.request, token)) {
          event.set_finish_reason(v1::FINISH_REASON_STOP);
          ended = true;
        }
      } else {
        event.set_finish_reason(v1::FINISH_REASON_LENGTH);
      }
      next = ended ? running_.erase(next) : std::next(next);
    }
  }
  if (events.events_size() > 0) Write(message);
}

}  // namespace baton::router
