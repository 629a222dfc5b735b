#include "router/attach_service.h"

#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/grpc_status.h"
#include "base/status_macros.h"
#include "router/worker_codec.h"

namespace baton::router {
namespace {

constexpr int kBatchesInFlightMax = 64;  // About a second of steps.
constexpr size_t kCommandsMax = 8192;    // More than a worker can have attempts of this router.

}  // namespace

// One worker's stream. Threads: gRPC's reactions (one OnReadDone and one OnWriteDone at a time),
// and lanes that send commands and give batches back. `mutex_` guards what they share; nothing of
// ours is called under it.
//
// Lifetime: the service holds it until OnDone; the registry holds it as a WorkerConnection, batches
// by their receipts.
class AttachStream final : public grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>,
                           public WorkerConnection,
                           public std::enable_shared_from_this<AttachStream> {
 public:
  explicit AttachStream(AttachService& service) : service_(service) {}

  void Start() { StartRead(&incoming_); }

  void Cancel(const RequestKey& key) override {
    v1::AttachResponse command;
    ToProto(key, *command.mutable_cancel()->mutable_key());
    base::MutexLock lock(mutex_);
    if (finished_) return;
    if (commands_.size() >= kCommandsMax) {
      return FinishOnce(absl::UnavailableError("the worker fell too far behind"));
    }
    commands_.push_back(std::move(command));
    if (welcomed_ && commands_.size() == 1) StartWrite(&commands_.front());
  }

  void Close(const absl::Status& status) override {
    base::MutexLock lock(mutex_);
    FinishOnce(status);
  }

  void OnReadDone(bool ok) override {
    const absl::Status handled = ok ? Handle() : absl::UnavailableError("the stream was closed");
    if (!handled.ok()) Detach();
    base::MutexLock lock(mutex_);
    if (!handled.ok()) return FinishOnce(handled);
    read_paused_ = batches_in_flight_ >= kBatchesInFlightMax;
    if (!read_paused_ && !finished_) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    commands_.pop_front();
    if (!ok) return FinishOnce(absl::UnavailableError("the worker takes no commands"));
    if (!finished_ && !commands_.empty()) StartWrite(&commands_.front());
  }

  // The connection broke. The read that is open fails as well, and detaches the worker in its turn.
  void OnCancel() override {
    base::MutexLock lock(mutex_);
    FinishOnce(absl::CancelledError("the worker is gone"));
  }

  void OnDone() override {
    // A stream that ended while it was not reading saw no failed read.
    Detach();
    service_.Remove(*this);
  }

 private:
  // Held by a batch; goes when the last lane is done with it.
  class Receipt {
   public:
    explicit Receipt(std::shared_ptr<AttachStream> stream) : stream_(std::move(stream)) {}
    ~Receipt() { stream_->OnBatchDone(); }
    Receipt(const Receipt&) = delete;
    Receipt& operator=(const Receipt&) = delete;

   private:
    std::shared_ptr<AttachStream> stream_;
  };

  void OnBatchDone() {
    base::MutexLock lock(mutex_);
    --batches_in_flight_;
    if (!read_paused_ || finished_) return;
    read_paused_ = false;
    StartRead(&incoming_);
  }

  absl::Status Handle() {
    const bool is_hello = incoming_.message_case() == v1::AttachRequest::kHello;
    if (is_hello == attached_) {
      return absl::InvalidArgumentError(attached_ ? "hello came twice"
                                                  : "the first message must be hello");
    }
    switch (incoming_.message_case()) {
      case v1::AttachRequest::kHello:
        return HandleHello();
      case v1::AttachRequest::kStepEvents:
        return HandleSteps();
      case v1::AttachRequest::kLoadReport:
        service_.events_.OnLoadReport(worker_, FromProto(incoming_.load_report()));
        return absl::OkStatus();
      case v1::AttachRequest::kDraining:
        service_.events_.OnDraining(worker_);
        return absl::OkStatus();
      default:
        return absl::OkStatus();  // From a newer worker.
    }
  }

  absl::Status HandleHello() {
    ASSIGN_OR_RETURN(const WorkerHello hello, FromProto(incoming_.hello()));
    worker_ = hello.incarnation;
    vocabulary_size_ = hello.vocabulary_size;
    RETURN_IF_ERROR(service_.events_.OnAttach(hello, shared_from_this()));
    attached_ = true;
    v1::AttachResponse welcome;
    welcome.mutable_welcome()->set_router_incarnation(service_.router_incarnation_.ToBytes());
    base::MutexLock lock(mutex_);
    // Commands may be here already: the welcome goes before them.
    commands_.push_front(std::move(welcome));
    welcomed_ = true;
    if (!finished_) StartWrite(&commands_.front());
    return absl::OkStatus();
  }

  absl::Status HandleSteps() {
    ASSIGN_OR_RETURN(StepBatch parsed, FromProto(incoming_.step_events(), vocabulary_size_));
    auto batch = std::make_shared<StepBatch>(std::move(parsed));
    batch->worker = worker_;
    {
      base::MutexLock lock(mutex_);
      ++batches_in_flight_;
    }
    batch->receipt = std::make_shared<Receipt>(shared_from_this());
    service_.events_.OnStepBatch(std::move(batch));
    return absl::OkStatus();
  }

  // By reactions only, which come one after another here: OnReadDone, then OnDone.
  void Detach() {
    if (!attached_) return;
    attached_ = false;
    service_.events_.OnDetach(worker_, *this);
  }

  void FinishOnce(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(base::ToGrpcStatus(status));
  }

  AttachService& service_;
  v1::AttachRequest incoming_;  // Of the reading reaction.
  base::Id128 worker_;
  uint32_t vocabulary_size_ = 0;  // As the worker said, and the model has.
  bool attached_ = false;

  base::Mutex mutex_;
  std::deque<v1::AttachResponse> commands_ ABSL_GUARDED_BY(mutex_);  // Front is in flight.
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  int batches_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
};

AttachService::AttachService(const base::Id128& router_incarnation, WorkerEvents& events)
    : router_incarnation_(router_incarnation), events_(events) {}

AttachService::~AttachService() = default;

grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* AttachService::Attach(
    grpc::CallbackServerContext*) {
  auto stream = std::make_shared<AttachStream>(*this);
  bool closed = false;
  {
    base::MutexLock lock(mutex_);
    streams_.insert(stream);
    closed = closed_;
  }
  if (closed) {
    stream->Close(absl::UnavailableError("the router is draining"));
  } else {
    stream->Start();
  }
  return stream.get();
}

void AttachService::Close() {
  std::vector<std::shared_ptr<AttachStream>> streams;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) {
    stream->Close(absl::UnavailableError("the router is going down"));
  }
}

void AttachService::Remove(AttachStream& stream) {
  // Released outside the lock: it may be the last reference.
  std::shared_ptr<AttachStream> self = stream.shared_from_this();
  base::MutexLock lock(mutex_);
  streams_.erase(self);
}

}  // namespace baton::router
