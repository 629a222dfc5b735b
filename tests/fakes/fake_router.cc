#include "tests/fakes/fake_router.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"

namespace baton::fakes {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

// Shared by gRPC (`self_`, dropped in OnDone) and the router.
class FakeRouter::Stream final
    : public grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse> {
 public:
  explicit Stream(FakeRouter& router) : router_(router) {}

  void Open(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    StartRead(&request_);
  }

  void Send(v1::AttachResponse message) {
    base::MutexLock lock(mutex_);
    if (finished_) return;
    waiting_.push_back(std::move(message));
    WriteNext();
  }

  void End(const grpc::Status& status) {
    base::MutexLock lock(mutex_);
    if (!std::exchange(finished_, true)) Finish(status);
  }

  // Reads on if it had stopped.
  void Resume() {
    base::MutexLock lock(mutex_);
    if (!finished_ && std::exchange(paused_, false)) StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);
    router_.Take(*this, request_);
    bool reading;
    {
      base::MutexLock lock(router_.mutex_);
      reading = router_.reading_;
    }
    base::MutexLock lock(mutex_);
    if (finished_) return;
    if (reading) return StartRead(&request_);
    paused_ = true;
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    if (ok) WriteNext();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    const std::shared_ptr<Stream> self = std::move(self_);
    router_.Forget(*this);
  }

  std::string worker;  // Its incarnation, from the hello; the reading thread's own.

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_ || waiting_.empty()) return;
    in_flight_ = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    writing_ = true;
    StartWrite(&in_flight_);
  }

  FakeRouter& router_;
  std::shared_ptr<Stream> self_;
  v1::AttachRequest request_;
  base::Mutex mutex_;
  std::vector<v1::AttachResponse> waiting_ ABSL_GUARDED_BY(mutex_);
  v1::AttachResponse in_flight_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
};

FakeRouter::FakeRouter(uint16_t port) {
  auto server = base::GrpcServer::Start({.port = port, .services = {this}});
  CHECK(server.ok()) << server.status().ToString();
  server_ = *std::move(server);
}

FakeRouter::~FakeRouter() { server_->Stop(absl::ZeroDuration()); }

std::string FakeRouter::address() const { return server_->address(); }
uint16_t FakeRouter::port() const { return server_->port(); }

void FakeRouter::RefuseWith(const grpc::Status& status) {
  base::MutexLock lock(mutex_);
  refusal_ = status;
}

void FakeRouter::SetReading(bool reading) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    base::MutexLock lock(mutex_);
    reading_ = reading;
    streams = streams_;
  }
  if (!reading) return;
  for (const auto& stream : streams) stream->Resume();
}

void FakeRouter::BreakStreams(const grpc::Status& status) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    base::MutexLock lock(mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) stream->End(status);
}

void FakeRouter::SendCancel(const kvstore::HandoffKey& key) {
  v1::AttachResponse message;
  message.mutable_cancel()->mutable_key()->set_request_id(key.request_id.ToBytes());
  message.mutable_cancel()->mutable_key()->set_attempt(key.attempt);
  std::vector<std::shared_ptr<Stream>> streams;
  {
    base::MutexLock lock(mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) stream->Send(message);
}

std::vector<v1::WorkerHello> FakeRouter::hellos() const {
  base::MutexLock lock(mutex_);
  return hellos_;
}

std::vector<v1::LoadReport> FakeRouter::loads() const {
  base::MutexLock lock(mutex_);
  return loads_;
}

uint32_t FakeRouter::draining_count() const {
  base::MutexLock lock(mutex_);
  return draining_count_;
}

size_t FakeRouter::message_count() const {
  base::MutexLock lock(mutex_);
  return message_count_;
}

size_t FakeRouter::attached_count() const {
  base::MutexLock lock(mutex_);
  return streams_.size();
}

Told FakeRouter::told(const std::string& worker, const kvstore::HandoffKey& key) const {
  base::MutexLock lock(mutex_);
  Told told;
  const std::string id = key.request_id.ToBytes();
  for (const auto& [from, event] : events_) {
    if (from != worker || event.key().request_id() != id || event.key().attempt() != key.attempt) {
      continue;
    }
    if (told.events.empty()) told.first_position = event.position();
    if (event.tokens_size() > 0) {
      CHECK_EQ(event.position(), told.first_position + told.tokens.size());
    }
    CHECK(!told.over()) << "an event after the last one";
    told.tokens.insert(told.tokens.end(), event.tokens().begin(), event.tokens().end());
    told.finish = event.finish_reason();
    if (event.has_error()) told.error = event.error();
    told.events.push_back(event);
  }
  return told;
}

bool FakeRouter::WaitUntil(const std::function<bool()>& condition) const {
  const absl::Time until = absl::Now() + kPatience;
  uint64_t seen = 0;
  while (true) {
    {
      base::MutexLock lock(mutex_);
      seen = changes_;
    }
    if (condition()) return true;
    base::MutexLock lock(mutex_);
    while (changes_ == seen) {
      if (absl::Now() >= until) return false;
      changed_.WaitFor(mutex_, absl::Milliseconds(20));
      break;  // The condition may also depend on what no worker says.
    }
    if (absl::Now() >= until) return false;
  }
}

grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* FakeRouter::Attach(
    grpc::CallbackServerContext*) {
  auto stream = std::make_shared<Stream>(*this);
  {
    base::MutexLock lock(mutex_);
    streams_.push_back(stream);
  }
  stream->Open(stream);
  return stream.get();
}

void FakeRouter::Take(Stream& stream, const v1::AttachRequest& message) {
  bool hello = false;
  grpc::Status refusal;
  {
    base::MutexLock lock(mutex_);
    switch (message.message_case()) {
      case v1::AttachRequest::kHello:
        hello = true;
        refusal = refusal_;
        stream.worker = message.hello().incarnation();
        hellos_.push_back(message.hello());
        break;
      case v1::AttachRequest::kStepEvents:
        ++message_count_;
        for (const v1::TokenEvent& event : message.step_events().events()) {
          events_.emplace_back(stream.worker, event);
        }
        break;
      case v1::AttachRequest::kLoadReport: loads_.push_back(message.load_report()); break;
      case v1::AttachRequest::kDraining: ++draining_count_; break;
      case v1::AttachRequest::MESSAGE_NOT_SET: break;
    }
    ++changes_;
  }
  changed_.NotifyAll();
  if (!hello) return;
  if (!refusal.ok()) return stream.End(refusal);
  v1::AttachResponse welcome;
  welcome.mutable_welcome()->set_router_incarnation(incarnation_.ToBytes());
  stream.Send(std::move(welcome));
}

void FakeRouter::Forget(const Stream& stream) {
  {
    base::MutexLock lock(mutex_);
    std::erase_if(streams_, [&](const auto& each) { return each.get() == &stream; });
    ++changes_;
  }
  changed_.NotifyAll();
}

}  // namespace baton::fakes
