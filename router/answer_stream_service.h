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
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "base/mutex.h"
#include "baton/v1/inference_service.grpc.pb.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/server_callback.h"
#include "router/answer_buffers.h"
#include "router/inference_codec.h"
#include "router/request_handler.h"

namespace baton::router {

inline v1::GenerateResponse& PieceOf(v1::GenerateResponse& response) { return response; }
inline v1::GenerateResponse& PieceOf(v1::ChatResponse& response) {
  return *response.mutable_piece();
}

template <typename Response>
class AnswerStream final : public grpc::ServerWriteReactor<Response>,
                           public AnswerSink,
                           public BufferedStream,
                           public std::enable_shared_from_this<AnswerStream<Response>> {
 public:
  // A message is closed at about this size: a client's receive limit is 4 MiB unless it says
  // otherwise.
  static constexpr int64_t kMessageBytesMax = 256 << 10;
  // How long a client that was cut off has to take its status, before the stream is torn down.
  static constexpr absl::Duration kCutOffGrace = absl::Seconds(5);

  AnswerStream(grpc::CallbackServerContext& context, RequestHandler& handler,
               AnswerBuffers& buffers)
      : context_(context), handler_(handler), buffers_(buffers) {}

  // Hands the request over, or ends the stream with what is wrong with it.
  void Start(absl::StatusOr<RequestSpec> spec) {
    if (!spec.ok()) return Fail(spec.status());
    // No reaction runs before the service has returned this reactor, so none sees a half-set id.
    id_ = base::Id128::Random();
    spec->id = id_;
    spec->arrival = absl::Now();
    if (context_.deadline() != std::chrono::system_clock::time_point::max()) {
      deadline_ = absl::FromChrono(context_.deadline());
    }
    spec->deadline = deadline_;
    const absl::Status submitted = handler_.Submit(*std::move(spec), this->shared_from_this());
    if (!submitted.ok()) Fail(submitted);
  }

  // --- AnswerSink ---

  void Write(const AnswerPiece& piece, const AnswerEnding* ending) override {
    int64_t bytes = 0;
    {
      base::MutexLock lock(mutex_);
      if (finished_) return;
      Queued& queued = Back();
      v1::GenerateResponse& message = PieceOf(queued.message);
      if (!id_sent_) message.set_request_id(id_.ToHex());
      id_sent_ = true;
      AppendPiece(piece, handler_.model().tokenizer.get(), message);
      if (ending != nullptr) SetEnding(*ending, message);
      bytes = BytesOf(piece);
      queued.bytes += bytes;
      buffered_.fetch_add(bytes, std::memory_order_relaxed);
      ended_ |= ending != nullptr;
      if (!writing_) WriteFront();
    }
    buffers_.Add(bytes);
  }

  void Fail(const absl::Status& status) override {
    base::MutexLock lock(mutex_);
    if (finished_ || ended_) return;
    ended_ = true;
    end_ = base::ToGrpcStatus(status);
    // What was written before is sent first.
    if (!writing_) FinishNow();
  }

  bool cancelled() const override { return cancelled_.load(std::memory_order_relaxed); }

  // --- BufferedStream ---

  int64_t buffered_bytes() const override { return buffered_.load(std::memory_order_relaxed); }

  void CutOff() override {
    const absl::Status why =
        absl::ResourceExhaustedError("the client reads too slowly: its answer was dropped");
    int64_t bytes = 0;
    {
      base::MutexLock lock(mutex_);
      bytes = buffered_.exchange(0, std::memory_order_relaxed);
      // Only the message in flight must stay.
      while (queue_.size() > (writing_ ? 1u : 0u)) queue_.pop_back();
      if (!queue_.empty()) queue_.front().bytes = 0;
      TearDownLater();
      if (!finished_) {
        end_ = base::ToGrpcStatus(why);
        FinishNow();
      }
    }
    buffers_.Add(-bytes);
    handler_.Cancel(id_, why);
  }

  // --- Reactions ---

  void OnWriteDone(bool ok) override {
    int64_t bytes = 0;
    {
      base::MutexLock lock(mutex_);
      writing_ = false;
      bytes = queue_.front().bytes;
      buffered_.fetch_sub(bytes, std::memory_order_relaxed);
      spare_ = std::move(queue_.front().message);
      queue_.pop_front();
      if (!finished_ && !ok) {
        end_ = grpc::Status::CANCELLED;
        FinishNow();
      } else if (!finished_ && !queue_.empty()) {
        WriteFront();
      } else if (!finished_ && ended_) {
        FinishNow();
      }
    }
    buffers_.Add(-bytes);
  }

  void OnCancel() override {
    cancelled_.store(true, std::memory_order_relaxed);
    const bool late = absl::Now() >= deadline_;
    const absl::Status why = late ? absl::DeadlineExceededError("the request's deadline passed")
                                  : absl::CancelledError("the client is gone");
    if (!id_.is_zero()) handler_.Cancel(id_, why);
    base::MutexLock lock(mutex_);
    if (finished_) return;
    end_ = base::ToGrpcStatus(why);
    FinishNow();
  }

  void OnDone() override {
    {
      base::MutexLock lock(mutex_);
      done_ = true;
      if (tear_down_ != nullptr) tear_down_->Cancel();
    }
    buffers_.Add(-buffered_.exchange(0, std::memory_order_relaxed));
    buffers_.Close(*this);
  }

 private:
  struct Queued {
    Response message;
    int64_t bytes = 0;
  };

  static int64_t BytesOf(const AnswerPiece& piece) {
    constexpr int64_t kLogprobBytes = 24;
    int64_t logprobs = 0;
    for (const PositionLogprobs& position : piece.logprobs) logprobs += 1 + position.top.size();
    for (const PositionLogprobs& position : piece.prompt_logprobs)
      logprobs += 1 + position.top.size();
    return static_cast<int64_t>(piece.text.size() + piece.tokens.size() * sizeof(uint32_t)) +
           logprobs * kLogprobBytes;
  }

  // The message that is still open.
  Queued& Back() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool open =
        queue_.size() > (writing_ ? 1u : 0u) && queue_.back().bytes < kMessageBytesMax;
    if (!open) {
      queue_.push_back({.message = std::move(spare_)});
      queue_.back().message.Clear();
    }
    return queue_.back();
  }

  void WriteFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = true;
    if (ended_ && end_.ok() && queue_.size() == 1) {
      finished_ = true;
      this->StartWriteAndFinish(&queue_.front().message, grpc::WriteOptions(), end_);
    } else {
      this->StartWrite(&queue_.front().message);
    }
  }

  void FinishNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    this->Finish(end_);
  }

  // A client that does not read does not see its status either: what is in flight would stay for
  // ever.
  void TearDownLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (tear_down_ != nullptr) return;
    tear_down_ = std::make_unique<grpc::Alarm>();
    tear_down_->Set(absl::ToChronoTime(absl::Now() + kCutOffGrace),
                    [self = this->shared_from_this()](bool due) {
                      base::MutexLock lock(self->mutex_);
                      if (due && !self->done_) self->context_.TryCancel();
                    });
  }

  grpc::CallbackServerContext& context_;
  RequestHandler& handler_;
  AnswerBuffers& buffers_;
  base::Id128 id_;
  absl::Time deadline_ = absl::InfiniteFuture();
  std::atomic<bool> cancelled_{false};
  std::atomic<int64_t> buffered_{0};

  base::Mutex mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);  // Front is in flight while writing_.
  Response spare_ ABSL_GUARDED_BY(mutex_);            // Keeps its capacity.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool id_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // The last call of the sink came.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC was told the end.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;      // `context_` is no more.
  grpc::Status end_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> tear_down_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
