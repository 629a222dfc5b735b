#include "router/answer_stream_service.h"

#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "base/grpc_status.h"
#include "router/inference_codec.h"
#include "router/wire_codec.h"

namespace baton::router {
namespace {

// A client that gives up at its deadline is heard of a little before ours, which began when its
// call arrived.
constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(20);

// What a piece takes while it waits, near enough.
int64_t BytesOf(const AnswerPiece& piece) {
  constexpr size_t kLogprobBytes = 24;
  size_t logprobs = 0;
  for (const PositionLogprobs& position : piece.logprobs) logprobs += 1 + position.top.size();
  for (const PositionLogprobs& position : piece.prompt_logprobs) {
    logprobs += 1 + position.top.size();
  }
  return static_cast<int64_t>(piece.text.size() + piece.tokens.size() * sizeof(uint32_t) +
                              logprobs * kLogprobBytes);
}

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  const bool none = deadline == std::chrono::system_clock::time_point::max();
  return none ? absl::InfiniteFuture() : absl::FromChrono(deadline);
}

}  // namespace

AnswerStream::AnswerStream(Kind kind, grpc::CallbackServerContext& context, RequestHandler& handler,
                           AnswerBuffers& buffers)
    : kind_(kind), context_(context), handler_(handler), buffers_(buffers) {}

void AnswerStream::Start(absl::StatusOr<RequestSpec> spec) {
  if (!spec.ok()) {
    handler_.NoteRefused(spec.status());
    return Fail(spec.status());
  }
  // No reaction runs before the service has returned this reactor, so none sees a half-set id.
  id_ = base::Id128::Random();
  deadline_ = DeadlineOf(context_);
  spec->id = id_;
  spec->arrival = absl::Now();
  spec->deadline = deadline_;
  const absl::Status submitted = handler_.Submit(*std::move(spec), shared_from_this());
  if (!submitted.ok()) Fail(submitted);
}

void AnswerStream::Write(const AnswerPiece& piece, const AnswerEnding* ending) {
  const int64_t bytes = BytesOf(piece);
  {
    base::MutexLock lock(mutex_);
    if (finished_) return;
    Queued& queued = Back();
    if (!id_sent_) queued.message.set_request_id(id_.ToHex());
    id_sent_ = true;
    AppendPiece(piece, handler_.model().tokenizer.get(), queued.message);
    if (ending != nullptr) SetEnding(*ending, queued.message);
    queued.bytes += bytes;
    buffered_.fetch_add(bytes, std::memory_order_relaxed);
    ended_ |= ending != nullptr;
    if (!writing_) WriteFront();
  }
  buffers_.Add(bytes);
}

void AnswerStream::Fail(const absl::Status& status) {
  base::MutexLock lock(mutex_);
  if (finished_ || ended_) return;
  ended_ = true;
  end_ = status;
  // What was written before is sent first.
  if (!writing_) FinishWith(status);
}

void AnswerStream::CutOff() {
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
    FinishWith(why);
  }
  buffers_.Add(-bytes);
  handler_.Cancel(id_, why);
}

void AnswerStream::OnWriteDone(bool ok) {
  int64_t bytes = 0;
  {
    base::MutexLock lock(mutex_);
    writing_ = false;
    bytes = queue_.front().bytes;
    buffered_.fetch_sub(bytes, std::memory_order_relaxed);
    spare_ = std::move(queue_.front().message);
    queue_.pop_front();
    wire_.Clear();
    if (!ok) {
      FinishWith(absl::CancelledError("the client is gone"));
    } else if (!finished_ && !queue_.empty()) {
      WriteFront();
    } else if (ended_) {
      FinishWith(end_);
    }
  }
  buffers_.Add(-bytes);
}

void AnswerStream::OnCancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  const bool late = absl::Now() + kDeadlineSlack >= deadline_;
  const absl::Status why = late ? absl::DeadlineExceededError("the request's deadline passed")
                                : absl::CancelledError("the client is gone");
  if (!id_.is_zero()) handler_.Cancel(id_, why);
  base::MutexLock lock(mutex_);
  FinishWith(why);
}

void AnswerStream::OnDone() {
  {
    base::MutexLock lock(mutex_);
    done_ = true;
    if (tear_down_ != nullptr) tear_down_->Cancel();
  }
  buffers_.Add(-buffered_.exchange(0, std::memory_order_relaxed));
  buffers_.Close(*this);
}

AnswerStream::Queued& AnswerStream::Back() {
  const bool open = queue_.size() > (writing_ ? 1u : 0u) && queue_.back().bytes < kMessageBytesMax;
  if (!open) {
    queue_.push_back({.message = std::move(spare_)});
    queue_.back().message.Clear();
  }
  return queue_.back();
}

void AnswerStream::WriteFront() {
  writing_ = true;
  Serialize(queue_.front().message);
  if (!ended_ || !end_.ok() || queue_.size() > 1) return StartWrite(&wire_);
  finished_ = true;
  StartWriteAndFinish(&wire_, grpc::WriteOptions(), grpc::Status::OK);
}

void AnswerStream::Serialize(v1::GenerateResponse& message) {
  if (kind_ == Kind::kGenerate) return SerializeMessage(message, wire_);
  envelope_.mutable_piece()->Swap(&message);
  SerializeMessage(envelope_, wire_);
  envelope_.mutable_piece()->Swap(&message);
}

void AnswerStream::FinishWith(const absl::Status& status) {
  if (finished_) return;
  finished_ = true;
  Finish(base::ToGrpcStatus(status));
}

// A client that does not read does not see its status either: what is in flight would stay for
// ever.
void AnswerStream::TearDownLater() {
  if (tear_down_ != nullptr || done_) return;
  tear_down_ = std::make_unique<grpc::Alarm>();
  tear_down_->Set(absl::ToChronoTime(absl::Now() + kCutOffGrace),
                  [self = shared_from_this()](bool due) {
                    base::MutexLock lock(self->mutex_);
                    if (due && !self->done_) self->context_.TryCancel();
                  });
}

}  // namespace baton::router
