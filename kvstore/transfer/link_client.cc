#include "kvstore/transfer/link_client.h"

#include <deque>
#include <utility>

#include "base/check.h"
#include "base/grpc_status.h"
#include "base/mutex.h"
#include "baton/v1/link_service.grpc.pb.h"
#include "grpc/grpc.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "kvstore/transfer/link_codec.h"

namespace baton::kvstore {
namespace {

constexpr char kPushRangesMethod[] = "/baton.v1.LinkService/PushRanges";

// What one stream of a link tells the link.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void OnStreamDone(const absl::Status& status) = 0;
};

// The control stream.
class ControlCall final : public grpc::ClientBidiReactor<v1::OpenLinkRequest, v1::OpenLinkResponse> {
 public:
  ControlCall(LinkId link, LinkClientEvents& events, StreamOwner& owner)
      : link_(link), events_(events), owner_(owner) {}

  void Open(v1::LinkService::Stub& stub, const LinkHello& hello) {
    stub.async()->OpenLink(&context_, this);
    // Writes and reads come from other threads than the reactor's: the hold keeps it from ending between them.
    AddHold();
    Send(ToProto(hello));
    AllowReads(1);  // The hello reply.
    StartCall();
  }

  void Send(v1::OpenLinkRequest request) {
    base::MutexLock lock(mutex_);
    if (ended_) return;
    waiting_.push_back(std::move(request));
    WriteIfAllowed();
  }

  void AllowReads(int count) {
    base::MutexLock lock(mutex_);
    reads_allowed_ += count;
    ReadIfAllowed();
  }

  void Cancel() {
    context_.TryCancel();
    base::MutexLock lock(mutex_);
    End();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      base::MutexLock lock(mutex_);
      End();
      return;
    }
    const absl::Status status = greeted_ ? Deliver() : Greet();
    if (!status.ok()) {
      violation_ = status;
      Cancel();
    }
    base::MutexLock lock(mutex_);
    reading_ = false;
    ReadIfAllowed();
  }

  absl::Status Greet() {
    const absl::StatusOr<LinkHelloReply> reply = HelloReplyFromProto(response_);
    if (!reply.ok()) return reply.status();
    greeted_ = true;
    events_.OnHelloReply(link_, *reply);
    return absl::OkStatus();
  }

  absl::Status Deliver() {
    const absl::StatusOr<SinkMessage> message = SinkMessageFromProto(response_);
    if (!message.ok()) return message.status();
    events_.OnMessage(link_, *message);
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    waiting_.pop_front();
    if (!ok) {
      End();
    } else if (!ended_) {
      WriteIfAllowed();
    }
  }

  void OnDone(const grpc::Status& status) override {
    owner_.OnStreamDone(violation_.ok() ? base::FromGrpcStatus(status) : violation_);
  }

  void ReadIfAllowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reading_ || reads_allowed_ == 0 || ended_) return;
    reading_ = true;
    --reads_allowed_;
    response_.Clear();
    StartRead(&response_);
  }

  void WriteIfAllowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || waiting_.empty()) return;
    writing_ = true;
    // With more to come, this one need not leave at once.
    grpc::WriteOptions options;
    if (waiting_.size() > 1) options.set_buffer_hint();
    StartWrite(&waiting_.front(), options);
  }

  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_) return;
    ended_ = true;
    RemoveHold();
  }

  const LinkId link_;
  LinkClientEvents& events_;
  StreamOwner& owner_;
  grpc::ClientContext context_;
  v1::OpenLinkResponse response_;
  bool greeted_ = false;    // Only reads touch it, one after the other.
  absl::Status violation_;  // The peer's; written before the last event.
  base::Mutex mutex_;
  // Bounded by what the source's pool can hold: each (layer, block) is announced once.
  std::deque<v1::OpenLinkRequest> waiting_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  int reads_allowed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// The bulk stream. Nothing comes back on it but its end.
class PushCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  PushCall(LinkId link, LinkClientEvents& events, StreamOwner& owner)
      : link_(link), events_(events), owner_(owner) {}

  void Open(const std::shared_ptr<grpc::Channel>& channel) {
    stub_ = std::make_unique<grpc::GenericStub>(channel);
    stub_->PrepareBidiStreamingCall(&context_, kPushRangesMethod, grpc::StubOptions(), this);
    AddHold();
    StartRead(&response_);
    StartCall();
  }

  bool CanPush() const {
    base::MutexLock lock(mutex_);
    return !ended_ && waiting_.size() < LinkClient::kFramesWaitingMax;
  }

  void Push(grpc::ByteBuffer frame) {
    base::MutexLock lock(mutex_);
    if (ended_) return;
    waiting_.push_back(std::move(frame));
    WriteIfAllowed();
  }

  void Cancel() {
    context_.TryCancel();
    base::MutexLock lock(mutex_);
    End();
  }

 private:
  // Any answer is one too many, so the stream is over either way.
  void OnReadDone(bool) override { Cancel(); }

  void OnWriteDone(bool ok) override {
    {
      base::MutexLock lock(mutex_);
      writing_ = false;
      waiting_.pop_front();
      if (!ok) {
        End();
      } else if (!ended_) {
        WriteIfAllowed();
      }
    }
    events_.OnFrameWritten(link_);
  }

  void OnDone(const grpc::Status& status) override {
    owner_.OnStreamDone(base::FromGrpcStatus(status));
  }

  void WriteIfAllowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || waiting_.empty()) return;
    writing_ = true;
    StartWrite(&waiting_.front());
  }

  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_) return;
    ended_ = true;
    RemoveHold();
  }

  const LinkId link_;
  LinkClientEvents& events_;
  StreamOwner& owner_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer response_;
  mutable base::Mutex mutex_;
  std::deque<grpc::ByteBuffer> waiting_ ABSL_GUARDED_BY(mutex_);  // kFramesWaitingMax at most.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class LinkClientImpl final : public LinkClient, private StreamOwner {
 public:
  LinkClientImpl(LinkId link, std::shared_ptr<grpc::Channel> channel, LinkClientEvents& events)
      : link_(link),
        events_(events),
        channel_(std::move(channel)),
        stub_(v1::LinkService::NewStub(channel_)),
        control_(link, events, *this),
        push_(link, events, *this) {}

  ~LinkClientImpl() override {
    base::MutexLock lock(mutex_);
    CHECK(streams_open_ == 0) << "a link was destroyed before it ended";
  }

  void Open(const LinkHello& hello) { control_.Open(*stub_, hello); }

  void Send(const SourceMessage& message) override { control_.Send(ToProto(message)); }
  void StartReading() override { control_.AllowReads(kRepliesReadAhead); }
  void ReadNext() override { control_.AllowReads(1); }

  void StartPushing() override {
    {
      base::MutexLock lock(mutex_);
      if (ending_) return;  // The control stream is gone already.
      CHECK(!pushing_) << "the bulk stream was opened twice";
      pushing_ = true;
      ++streams_open_;
    }
    push_.Open(channel_);
    bool ending;
    {
      base::MutexLock lock(mutex_);
      push_open_ = true;
      ending = ending_;
    }
    if (ending) push_.Cancel();
  }

  bool CanPush() const override {
    {
      base::MutexLock lock(mutex_);
      if (!pushing_) return false;
    }
    return push_.CanPush();
  }

  void Push(grpc::ByteBuffer frame) override { push_.Push(std::move(frame)); }

  void Cancel() override {
    bool push_open;
    {
      base::MutexLock lock(mutex_);
      ending_ = true;
      push_open = push_open_;
    }
    control_.Cancel();
    if (push_open) push_.Cancel();
  }

 private:
  // One stream's end is the link's end. The count goes down last: whoever is told that it is zero destroys this.
  void OnStreamDone(const absl::Status& status) override {
    {
      base::MutexLock lock(mutex_);
      // The first stream to end says why; the other one is cancelled for it.
      if (status_.ok()) {
        status_ = status.ok() ? absl::UnavailableError("the decode worker closed the link") : status;
      }
    }
    Cancel();
    const LinkId link = link_;
    LinkClientEvents& events = events_;
    absl::Status why;
    bool last;
    {
      base::MutexLock lock(mutex_);
      why = status_;
      last = --streams_open_ == 0;
    }
    if (last) events.OnLinkEnded(link, why);
  }

  const LinkId link_;
  LinkClientEvents& events_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::LinkService::Stub> stub_;
  mutable base::Mutex mutex_;
  bool pushing_ ABSL_GUARDED_BY(mutex_) = false;
  bool push_open_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  int streams_open_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  ControlCall control_;
  PushCall push_;
};

}  // namespace

void KeepGrpcRunning() { grpc_init(); }

std::unique_ptr<LinkClient> LinkClient::Open(LinkId link, std::shared_ptr<grpc::Channel> channel,
                                             const LinkHello& hello, LinkClientEvents& events) {
  auto client = std::make_unique<LinkClientImpl>(link, std::move(channel), events);
  client->Open(hello);
  return client;
}

}  // namespace baton::kvstore
