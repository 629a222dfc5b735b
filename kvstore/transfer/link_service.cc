#include "kvstore/transfer/link_service.h"

#include <deque>
#include <utility>

#include "base/grpc_status.h"
#include "base/mutex.h"
#include "baton/v1/link_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "kvstore/transfer/link_codec.h"

namespace baton::kvstore {
namespace {

// With so many replies waiting for a peer that does not read them, we do not read from it either.
constexpr size_t kRepliesWaitingMax = 1024;

// What both kinds of stream share: when reads may start, and that a call is finished once, after its last write.
//
// gRPC's reactors end with OnDone(), which may come on any thread; `self_` keeps the reactor until then, and whoever else
// holds it finds it closed.
template <typename Interface, typename Request, typename Response>
class Stream : public grpc::ServerBidiReactor<Request, Response>,
               public Interface,
               public std::enable_shared_from_this<Stream<Interface, Request, Response>> {
 public:
  // `read_ahead`: messages to read before the first one is done with.
  void Start(int read_ahead) {
    self_ = this->shared_from_this();
    AllowReads(read_ahead);
  }

  void ReadNext() override { AllowReads(1); }

  void Close(const absl::Status& status) override {
    base::MutexLock lock(mutex_);
    if (closing_) return;
    closing_ = true;
    status_ = base::ToGrpcStatus(status);
    // A write under way goes first, so that the peer learns the status; if the peer is frozen, keepalive ends the write.
    FinishIfAllowed();
  }

 protected:
  void AllowReads(int count) {
    base::MutexLock lock(mutex_);
    reads_allowed_ += count;
    ReadIfAllowed();
  }

  void Write(Response response) {
    base::MutexLock lock(mutex_);
    if (closing_) return;
    waiting_.push_back(std::move(response));
    WriteIfAllowed();
  }

  // A message was read; it is in `request()` until this returns.
  virtual void OnRequest() = 0;
  virtual void OnEnded() = 0;
  Request& request() { return request_; }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      Close(absl::OkStatus());
      return;
    }
    OnRequest();
    base::MutexLock lock(mutex_);
    reading_ = false;
    ReadIfAllowed();
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    waiting_.pop_front();
    if (!ok) closing_ = true;
    if (closing_) {
      FinishIfAllowed();
    } else {
      WriteIfAllowed();
      ReadIfAllowed();
    }
  }

  // The peer is gone or the server stops: no read may be under way that would tell.
  void OnCancel() override { Close(absl::CancelledError("the link was cancelled")); }

  void OnDone() override {
    {
      base::MutexLock lock(mutex_);
      closing_ = true;
      done_ = true;
    }
    OnEnded();
    self_.reset();
  }

  void ReadIfAllowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reading_ || reads_allowed_ == 0 || closing_) return;
    if (waiting_.size() > kRepliesWaitingMax) return;
    reading_ = true;
    --reads_allowed_;
    request_ = Request();
    this->StartRead(&request_);
  }

  void WriteIfAllowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || waiting_.empty()) return;
    writing_ = true;
    // With more to come, this one need not leave at once.
    grpc::WriteOptions options;
    if (waiting_.size() > 1) options.set_buffer_hint();
    this->StartWrite(&waiting_.front(), options);
  }

  void FinishIfAllowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_ || done_) return;
    finished_ = true;
    this->Finish(status_);
  }

  std::shared_ptr<Stream> self_;
  Request request_;
  base::Mutex mutex_;
  std::deque<Response> waiting_ ABSL_GUARDED_BY(mutex_);  // The first is being written if `writing_`.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  int reads_allowed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

class ControlReactor final
    : public Stream<ControlStream, v1::OpenLinkRequest, v1::OpenLinkResponse> {
 public:
  explicit ControlReactor(LinkServiceEvents& events) : events_(events) {}

  void StartReading() override { AllowReads(kMessagesReadAhead); }
  void Send(const LinkHelloReply& reply) override { Write(ToProto(reply)); }
  void Send(const SinkMessage& message) override { Write(ToProto(message)); }

 private:
  std::shared_ptr<ControlStream> shared() {
    return std::static_pointer_cast<ControlReactor>(shared_from_this());
  }

  void OnRequest() override {
    if (greeted_) {
      events_.OnMessage(shared(), SourceMessageFromProto(request()));
    } else {
      greeted_ = true;
      events_.OnHello(shared(), HelloFromProto(request()));
    }
  }

  void OnEnded() override { events_.OnStreamEnded(shared()); }

  LinkServiceEvents& events_;
  bool greeted_ = false;
};

class PushReactor final : public Stream<PushStream, grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit PushReactor(LinkServiceEvents& events) : events_(events) {}

 private:
  std::shared_ptr<PushStream> shared() {
    return std::static_pointer_cast<PushReactor>(shared_from_this());
  }

  void OnRequest() override { events_.OnFrame(shared(), std::move(request())); }
  void OnEnded() override { events_.OnStreamEnded(shared()); }

  LinkServiceEvents& events_;
};

using RawPushService = v1::LinkService::WithRawCallbackMethod_PushRanges<
    v1::LinkService::WithCallbackMethod_OpenLink<v1::LinkService::Service>>;

class LinkServiceImpl final : public RawPushService {
 public:
  explicit LinkServiceImpl(LinkServiceEvents& events) : events_(events) {}

  grpc::ServerBidiReactor<v1::OpenLinkRequest, v1::OpenLinkResponse>* OpenLink(
      grpc::CallbackServerContext*) override {
    const auto reactor = std::make_shared<ControlReactor>(events_);
    reactor->Start(1);  // The hello.
    return reactor.get();
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PushRanges(
      grpc::CallbackServerContext*) override {
    const auto reactor = std::make_shared<PushReactor>(events_);
    reactor->Start(kFramesReadAhead);
    return reactor.get();
  }

 private:
  LinkServiceEvents& events_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeLinkService(LinkServiceEvents& events) {
  return std::make_unique<LinkServiceImpl>(events);
}

}  // namespace baton::kvstore
