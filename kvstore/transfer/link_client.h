// The prefill side's gRPC end of one link: the control stream and, if ranges are pushed, the bulk stream beside it.
//
// Like the service's streams it only moves messages, and reads a few replies ahead.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "kvstore/handoff_messages.h"
#include "kvstore/transfer/link_hello.h"

namespace baton::kvstore {

// Keeps gRPC from shutting down for the rest of the process. Whoever uses gRPC last (the last link, if no server is left)
// would wait in its shutdown: for 10 s if a write was under way on a connection that broke, while its poller sleeps.
void KeepGrpcRunning();

// Told on gRPC's threads: must not block. OnLinkEnded is the last, once.
class LinkClientEvents {
 public:
  virtual ~LinkClientEvents() = default;
  virtual void OnHelloReply(LinkId link, const LinkHelloReply& reply) = 0;
  virtual void OnMessage(LinkId link, const SinkMessage& message) = 0;
  virtual void OnFrameWritten(LinkId link) = 0;
  // Both streams are done. `status` is not OK.
  virtual void OnLinkEnded(LinkId link, const absl::Status& status) = 0;
};

class LinkClient {
 public:
  static constexpr int kRepliesReadAhead = 64;
  // Frames waiting to be written, the one being written included: one copy ahead keeps the stream busy.
  static constexpr size_t kFramesWaitingMax = 2;

  // Calls OpenLink and sends `hello`. `events` outlives the OnLinkEnded call.
  static std::unique_ptr<LinkClient> Open(LinkId link, std::shared_ptr<grpc::Channel> channel,
                                          const LinkHello& hello, LinkClientEvents& events);
  // REQUIRES: OnLinkEnded was called.
  virtual ~LinkClient() = default;

  virtual void Send(const SourceMessage& message) = 0;
  // The hello reply was good: other replies may come.
  virtual void StartReading() = 0;
  // A reply is done with: one more may be read.
  virtual void ReadNext() = 0;

  // Opens the bulk stream. Call once, after the hello reply.
  virtual void StartPushing() = 0;
  // Fewer than kFramesWaitingMax frames wait. Changes to true only after OnFrameWritten().
  virtual bool CanPush() const = 0;
  // REQUIRES: CanPush().
  virtual void Push(grpc::ByteBuffer frame) = 0;

  // Ends both streams; OnLinkEnded follows.
  virtual void Cancel() = 0;
};

}  // namespace baton::kvstore
