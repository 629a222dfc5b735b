// The decode side's gRPC end: LinkService as streams of our own messages.
//
// Reactors only move messages. A stream reads a few messages ahead, and one more for each that its owner says it is done
// with, so that a slow hand-off thread holds the peer back by HTTP/2's flow control.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/byte_buffer.h"
#include "kvstore/handoff_messages.h"
#include "kvstore/transfer/link_hello.h"

namespace baton::kvstore {

// Messages that a stream may have read and its owner is not done with. Small ones, and frames of a MiB.
inline constexpr int kMessagesReadAhead = 64;
inline constexpr int kFramesReadAhead = 3;

// One OpenLink call. Thread-safe; after Close() or the call's end nothing has an effect.
class ControlStream {
 public:
  virtual ~ControlStream() = default;
  virtual void Send(const LinkHelloReply& reply) = 0;
  virtual void Send(const SinkMessage& message) = 0;
  // The hello was good: other messages may come.
  virtual void StartReading() = 0;
  // A message is done with: one more may be read.
  virtual void ReadNext() = 0;
  virtual void Close(const absl::Status& status) = 0;
};

// One PushRanges call. The same.
class PushStream {
 public:
  virtual ~PushStream() = default;
  virtual void ReadNext() = 0;
  virtual void Close(const absl::Status& status) = 0;
};

// Told on gRPC's threads: must not block. Each stream's events come one after the other; OnStreamEnded is its last.
class LinkServiceEvents {
 public:
  virtual ~LinkServiceEvents() = default;
  // The first message of a call. An error: it was none; INVALID_ARGUMENT or FAILED_PRECONDITION.
  virtual void OnHello(std::shared_ptr<ControlStream> stream, absl::StatusOr<LinkHello> hello) = 0;
  virtual void OnMessage(const std::shared_ptr<ControlStream>& stream,
                         absl::StatusOr<SourceMessage> message) = 0;
  virtual void OnStreamEnded(const std::shared_ptr<ControlStream>& stream) = 0;

  virtual void OnFrame(const std::shared_ptr<PushStream>& stream, grpc::ByteBuffer frame) = 0;
  virtual void OnStreamEnded(const std::shared_ptr<PushStream>& stream) = 0;
};

// `events` outlives the service and the server that it is registered with.
std::unique_ptr<grpc::Service> MakeLinkService(LinkServiceEvents& events);

}  // namespace baton::kvstore
