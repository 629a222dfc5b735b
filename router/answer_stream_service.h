// One client's answer over gRPC: pieces come from a lane, messages go as fast as the client reads.
//
// gRPC takes one write at a time; what comes meanwhile is added to the message that waits, so a
// client that falls behind gets fewer and larger messages. What waits is counted in AnswerBuffers,
// which may cut the stream off.
//
// Threads: the lane (Write, Fail), gRPC's reactions, any lane or reaction (CutOff). `mutex_` guards
// what they share; nothing of ours is called under it. Lifetime: AnswerBuffers holds the stream
// until gRPC's OnDone, the request's tracker holds it as its sink.
#pragma once

#include <atomic>
#include <deque>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "baton/v1/inference_service.pb.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "router/answer_buffers.h"
#include "router/request_handler.h"

namespace baton::router {

class AnswerStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public AnswerSink,
                           public BufferedStream,
                           public std::enable_shared_from_this<AnswerStream> {
 public:
  enum class Kind { kGenerate, kChat };  // Which response its pieces travel in.

  // A message is closed at about this size: a client's receive limit is 4 MiB unless it says
  // otherwise.
  static constexpr int64_t kMessageBytesMax = 256 << 10;
  // How long a client that was cut off has to take its status, before the stream is torn down.
  static constexpr absl::Duration kCutOffGrace = absl::Seconds(5);

  // All outlive the stream.
  AnswerStream(Kind kind, grpc::CallbackServerContext& context, RequestHandler& handler,
               AnswerBuffers& buffers);

  // Hands the request over, or ends the stream with what is wrong with it.
  void Start(absl::StatusOr<RequestSpec> spec);

  // AnswerSink.
  void Write(const AnswerPiece& piece, const AnswerEnding* ending) override;
  void Fail(const absl::Status& status) override;
  bool cancelled() const override { return cancelled_.load(std::memory_order_relaxed); }

  // BufferedStream.
  int64_t buffered_bytes() const override { return buffered_.load(std::memory_order_relaxed); }
  void CutOff() override;

  // Reactions.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Queued {
    v1::GenerateResponse message;
    int64_t bytes = 0;
  };

  // The message that is still open.
  Queued& Back() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serialize(v1::GenerateResponse& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TearDownLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Kind kind_;
  grpc::CallbackServerContext& context_;
  RequestHandler& handler_;
  AnswerBuffers& buffers_;
  base::Id128 id_;
  absl::Time deadline_ = absl::InfiniteFuture();
  std::atomic<bool> cancelled_{false};
  std::atomic<int64_t> buffered_{0};

  base::Mutex mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);    // Front is in flight while writing_.
  grpc::ByteBuffer wire_ ABSL_GUARDED_BY(mutex_);       // Front, while it is in flight.
  v1::GenerateResponse spare_ ABSL_GUARDED_BY(mutex_);  // Keeps its capacity.
  v1::ChatResponse envelope_ ABSL_GUARDED_BY(mutex_);   // Of kChat.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool id_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // The last call of the sink came.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC was told the end.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;      // `context_` is no more.
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> tear_down_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
