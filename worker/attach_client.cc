#include "worker/attach_client.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "base/grpc_server.h"
#include "base/grpc_status.h"
#include "base/log.h"
#include "baton/v1/attach_service.grpc.pb.h"
#include "worker/event_codec.h"

namespace baton::worker {
namespace {

// One message, at most, below the channel's limit of 16 MiB; a larger single event goes alone.
constexpr size_t kBatchBytesMax = 4 << 20;
// Empty batches kept for their memory.
constexpr size_t kSpareBatchesMax = 4;

// A StepEvents message and what it will weigh.
struct Batch {
  v1::AttachRequest message;
  size_t bytes = 0;
};

}  // namespace

// One attach to one router, from dial to end; a new one is made for each try.
//
// Threads meet here: the step thread adds events, the attach thread adds load, gRPC's threads finish writes and bring
// commands. gRPC takes one write at a time; what waits is sent in the order drain, events, load.
//
// Lifetime: shared by the client and by gRPC (`self_`, dropped in OnDone). A hold keeps gRPC from ending the call while
// writes may still be started from outside; it is let go of when the stream can no longer be read.
class AttachClient::Stream final
    : public grpc::ClientBidiReactor<v1::AttachRequest, v1::AttachResponse> {
 public:
  Stream(AttachClient& client, std::string address, absl::Time now)
      : client_(client), address_(std::move(address)), dialled_(now) {}

  void Open(std::shared_ptr<Stream> self, v1::AttachService::Stub& stub) {
    self_ = std::move(self);
    stub.async()->Attach(&context_, this);
    AddHold();
    StartRead(&command_);
    {
      base::MutexLock lock(mutex_);
      EncodeHello(client_.hello_, *control_.mutable_hello());
      Write(control_);
    }
    StartCall();  // The call may be over before this returns.
  }

  const std::string& address() const { return address_; }
  absl::Time dialled() const { return dialled_; }

  // Zero: not welcomed yet, or closed.
  base::Id128 router() const {
    base::MutexLock lock(mutex_);
    return open() ? router_ : base::Id128{};
  }
  // Who it is or was attached to; zero: nobody.
  base::Id128 welcomed_by() const {
    base::MutexLock lock(mutex_);
    return router_;
  }

  // Adds those events that are for this router and sends them.
  void AddEvents(absl::Span<const TokenEvent> events) {
    base::MutexLock lock(mutex_);
    if (!open() || router_.is_zero()) return;
    for (const TokenEvent& event : events) {
      if (event.router == router_) Add(event);
    }
    if (pending_bytes_ > client_.options_.pending_bytes_max) {
      LOG(WARNING) << "router does not take its events, closing"
                   << base::LogField("router", address_)
                   << base::LogField("pending_bytes", pending_bytes_);
      return CloseLocked();
    }
    WriteNext();
  }

  // Sends `load` if it says something new, or if it is time.
  void Report(const WorkerLoad& load, absl::Time now) {
    base::MutexLock lock(mutex_);
    if (!open() || router_.is_zero()) return;
    const bool news = !(load == reported_) || load.current_step_age.has_value();
    const absl::Duration interval =
        news ? client_.options_.report_interval : client_.options_.idle_report_interval;
    // A tick may come a little early.
    if (now - reported_at_ < interval * 0.9) return;
    reported_ = load;
    reported_at_ = now;
    load_waiting_ = true;
    WriteNext();
  }

  void AnnounceDraining() {
    base::MutexLock lock(mutex_);
    if (!open()) return;
    drain_waiting_ = true;
    if (!router_.is_zero()) WriteNext();
  }

  // Sends what waits, then says that nothing follows: the router ends the call.
  void FinishWriting() {
    base::MutexLock lock(mutex_);
    if (!open()) return;
    if (router_.is_zero()) return CloseLocked();
    done_waiting_ = true;
    WriteNext();
  }

  void Close() {
    base::MutexLock lock(mutex_);
    CloseLocked();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return LetGo();
    if (!Take(command_)) return Close(), LetGo();
    StartRead(&command_);
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    if (in_flight_ != nullptr) Recycle(std::move(in_flight_));
    if (!ok) return CloseLocked();
    if (!router_.is_zero()) WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Stream> self = std::move(self_);
    {
      base::MutexLock lock(mutex_);
      ended_ = true;
      readable_ = false;
    }
    client_.OnEnded(*this, base::FromGrpcStatus(status));
  }

 private:
  bool open() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return readable_ && !closing_; }

  // False: the router does not keep to the protocol.
  bool Take(const v1::AttachResponse& command) {
    switch (command.message_case()) {
      case v1::AttachResponse::kWelcome: return TakeWelcome(command.welcome());
      case v1::AttachResponse::kCancel: return TakeCancel(command.cancel());
      case v1::AttachResponse::kCreditReturn:
      case v1::AttachResponse::MESSAGE_NOT_SET: return true;  // Of a later version.
    }
    return true;
  }

  bool TakeWelcome(const v1::RouterWelcome& welcome) {
    const absl::StatusOr<base::Id128> id =
        DecodeId("router_incarnation", welcome.router_incarnation());
    if (!id.ok()) return Refuse(id.status());
    {
      base::MutexLock lock(mutex_);
      if (!router_.is_zero()) return true;
      router_ = *id;
    }
    client_.OnWelcome(*this);
    return true;
  }

  bool TakeCancel(const v1::CancelAttempt& cancel) {
    const base::Id128 from = router();
    const absl::StatusOr<AttemptKey> key = DecodeAttemptKey(cancel.key());
    if (!key.ok()) return Refuse(key.status());
    if (!from.is_zero()) client_.engine_.Cancel(from, *key);
    return true;
  }

  bool Refuse(const absl::Status& why) {
    LOG(WARNING) << "router sent nonsense, closing" << base::LogField("router", address_)
                 << base::LogField("error", why.message());
    return false;
  }

  void Add(const TokenEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const size_t bytes = EncodedBytesBound(event);
    if (pending_.empty() || pending_.back()->bytes + bytes > kBatchBytesMax) {
      pending_.push_back(TakeSpare());
    }
    Batch& batch = *pending_.back();
    EncodeTokenEvent(event, *batch.message.mutable_step_events()->add_events());
    batch.bytes += bytes;
    pending_bytes_ += bytes;
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || !open()) return;
    if (drain_waiting_) {
      drain_waiting_ = false;
      control_.mutable_draining();
      return Write(control_);
    }
    if (!pending_.empty()) {
      in_flight_ = std::move(pending_.front());
      pending_.pop_front();
      pending_bytes_ -= in_flight_->bytes;
      return Write(in_flight_->message);
    }
    if (load_waiting_) {
      load_waiting_ = false;
      v1::LoadReport& report = *control_.mutable_load_report();
      report.Clear();
      EncodeLoad(reported_, report);
      report.set_sequence_number(++reports_);
      return Write(control_);
    }
    if (done_waiting_) {
      done_waiting_ = false;
      writing_ = true;  // For good: nothing may follow.
      StartWritesDone();
    }
  }

  void Write(const v1::AttachRequest& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = true;
    StartWrite(&message);
  }

  std::unique_ptr<Batch> TakeSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (spare_.empty()) return std::make_unique<Batch>();
    std::unique_ptr<Batch> batch = std::move(spare_.back());
    spare_.pop_back();
    return batch;
  }

  // Clears the events alone: the message keeps their memory.
  void Recycle(std::unique_ptr<Batch> batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (spare_.size() >= kSpareBatchesMax) return;
    batch->message.mutable_step_events()->Clear();
    batch->bytes = 0;
    spare_.push_back(std::move(batch));
  }

  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closing_ || ended_) return;
    closing_ = true;
    pending_.clear();
    pending_bytes_ = 0;
    context_.TryCancel();
  }

  // Nothing more can be read: the call may end once writes in flight are done.
  void LetGo() {
    {
      base::MutexLock lock(mutex_);
      readable_ = false;
    }
    RemoveHold();
  }

  AttachClient& client_;
  const std::string address_;
  const absl::Time dialled_;
  grpc::ClientContext context_;
  v1::AttachResponse command_;  // Of the read in progress.
  std::shared_ptr<Stream> self_;

  mutable base::Mutex mutex_;
  base::Id128 router_ ABSL_GUARDED_BY(mutex_);
  bool readable_ ABSL_GUARDED_BY(mutex_) = true;  // The hold is held.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;

  v1::AttachRequest control_ ABSL_GUARDED_BY(mutex_);  // Hello, drain or load; in flight or free.
  std::deque<std::unique_ptr<Batch>> pending_ ABSL_GUARDED_BY(mutex_);
  size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Batch> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Batch>> spare_ ABSL_GUARDED_BY(mutex_);
  bool drain_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_waiting_ ABSL_GUARDED_BY(mutex_) = false;

  WorkerLoad reported_ ABSL_GUARDED_BY(mutex_);
  absl::Time reported_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool load_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct AttachClient::Router {
  std::string address;
  // One channel for all tries.
  std::unique_ptr<v1::AttachService::Stub> stub;
  std::shared_ptr<Stream> stream;  // Null: away.
  absl::Time retry_at = absl::InfinitePast();
  absl::Duration pause;      // Before the next try.
  std::string last_failure;  // Logged once, not at each try.
};

AttachClient::AttachClient(AttachOptions options, EngineControl& engine, WorkerProbe* probe)
    : options_(std::move(options)), engine_(engine), probe_(probe) {
  CHECK(options_.routers.size() <= AttachOptions::kRoutersMax);
  base::MutexLock lock(mutex_);
  for (const std::string& address : options_.routers) {
    routers_.push_back(std::make_unique<Router>(
        Router{.address = address,
               .stub = v1::AttachService::NewStub(base::OpenChannel(address)),
               .pause = options_.retry_min}));
  }
}

AttachClient::~AttachClient() { Stop(absl::ZeroDuration()); }

void AttachClient::Start(WorkerHello hello) {
  CHECK(!thread_.joinable());
  hello_ = std::move(hello);
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "attach");
}

void AttachClient::AnnounceDraining() {
  {
    base::MutexLock lock(mutex_);
    draining_ = true;
  }
  for (const auto& stream : streams()) stream->AnnounceDraining();
}

void AttachClient::Stop(absl::Duration flush) {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  for (const auto& stream : streams()) stream->FinishWriting();
  const absl::Time until = absl::Now() + flush;
  {
    base::MutexLock lock(mutex_);
    while (!all_away() && absl::Now() < until) changed_.WaitFor(mutex_, until - absl::Now());
  }
  for (const auto& stream : streams()) stream->Close();
  base::MutexLock lock(mutex_);
  while (!all_away()) changed_.Wait(mutex_);
}

void AttachClient::Publish(absl::Span<const TokenEvent> events) {
  if (events.empty()) return;
  for (const auto& stream : streams()) stream->AddEvents(events);
}

bool AttachClient::IsAttached(const base::Id128& router) const {
  for (const auto& stream : streams()) {
    if (stream->router() == router) return true;
  }
  return false;
}

uint32_t AttachClient::routers_attached() const {
  const auto all = streams();
  return static_cast<uint32_t>(std::count_if(
      all.begin(), all.end(), [](const auto& stream) { return !stream->router().is_zero(); }));
}

void AttachClient::Run() {
  while (true) {
    const absl::Time now = absl::Now();
    DialThoseDue(now);
    ReportLoad(now);
    base::MutexLock lock(mutex_);
    if (!stopping_) changed_.WaitFor(mutex_, options_.report_interval);
    if (stopping_) return;
  }
}

void AttachClient::DialThoseDue(absl::Time now) {
  std::vector<std::pair<std::shared_ptr<Stream>, v1::AttachService::Stub*>> dialled;
  std::vector<std::shared_ptr<Stream>> silent;
  {
    base::MutexLock lock(mutex_);
    for (const auto& router : routers_) {
      if (router->stream == nullptr) {
        if (stopping_ || now < router->retry_at) continue;
        router->stream = std::make_shared<Stream>(*this, router->address, now);
        dialled.emplace_back(router->stream, router->stub.get());
      } else if (router->stream->welcomed_by().is_zero() &&
                 now - router->stream->dialled() > options_.welcome_timeout) {
        silent.push_back(router->stream);
      }
    }
  }
  for (const auto& [stream, stub] : dialled) stream->Open(stream, *stub);
  for (const auto& stream : silent) stream->Close();
}

void AttachClient::ReportLoad(absl::Time now) {
  WorkerLoad load = engine_.load();
  load.routers_attached = routers_attached();
  if (probe_ != nullptr) probe_->Show(load);
  for (const auto& stream : streams()) stream->Report(load, now);
}

void AttachClient::OnWelcome(Stream& stream) {
  LOG(INFO) << "attached" << base::LogField("router", stream.address())
            << base::LogField("router_incarnation", stream.router());
  bool draining = false;
  {
    base::MutexLock lock(mutex_);
    for (const auto& router : routers_) {
      if (router->stream.get() != &stream) continue;
      router->pause = options_.retry_min;
      router->last_failure.clear();
    }
    draining = draining_;
  }
  if (draining) stream.AnnounceDraining();
  // The first report tells the router that its requests are taken from now on.
  WorkerLoad load = engine_.load();
  load.routers_attached = routers_attached();
  stream.Report(load, absl::Now());
}

void AttachClient::OnEnded(const Stream& stream, const absl::Status& status) {
  const base::Id128 router_id = stream.welcomed_by();
  if (!router_id.is_zero()) {
    LOG(INFO) << "detached" << base::LogField("router", stream.address())
              << base::LogField("router_incarnation", router_id)
              << base::LogField("status", status.ToString());
    engine_.DropRouter(router_id);
  }
  base::MutexLock lock(mutex_);
  for (const auto& router : routers_) {
    if (router->stream.get() != &stream) continue;
    router->stream.reset();
    router->retry_at = absl::Now() + router->pause;
    router->pause = std::min(2 * router->pause, options_.retry_max);
    if (!router_id.is_zero() || stopping_ || status.ToString() == router->last_failure) continue;
    router->last_failure = status.ToString();
    LOG(WARNING) << "cannot attach, will keep trying" << base::LogField("router", router->address)
                 << base::LogField("status", router->last_failure);
  }
  changed_.NotifyAll();
}

std::vector<std::shared_ptr<AttachClient::Stream>> AttachClient::streams() const {
  std::vector<std::shared_ptr<Stream>> streams;
  base::MutexLock lock(mutex_);
  streams.reserve(routers_.size());
  for (const auto& router : routers_) {
    if (router->stream != nullptr) streams.push_back(router->stream);
  }
  return streams;
}

bool AttachClient::all_away() const {
  return std::all_of(routers_.begin(), routers_.end(),
                     [](const auto& router) { return router->stream == nullptr; });
}

}  // namespace baton::worker
