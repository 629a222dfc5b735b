#include "decode_worker/decode_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/log.h"
#include "kvstore/block_hash.h"
#include "worker/handoff_tokens.h"

namespace baton::decode_worker {
namespace {

using runner::FinishReason;
using runner::SequenceId;

// How long to wait when sequences want blocks that hand-offs hold.
constexpr absl::Duration kBlockedPause = absl::Milliseconds(10);

// As kvstore/handoff.h says it: the answer ended at its first token, which the prefill worker tells the router.
bool EndedAtFirstToken(const absl::Status& status) {
  return status.code() == absl::StatusCode::kCancelled &&
         absl::StrContains(status.message(), "first token");
}

// As the router should hear of a hand-off that failed.
absl::Status HandoffFailure(const absl::Status& status) {
  const absl::StatusCode code = status.ok() || status.code() == absl::StatusCode::kCancelled
                                    ? absl::StatusCode::kUnavailable
                                    : status.code();
  return absl::Status(code, absl::StrCat("hand-off from the prefill worker failed: ",
                                         status.message()));
}

bool IsStopToken(const worker::EngineRequest& request, uint32_t token) {
  const auto& stops = request.stop_token_ids;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

}  // namespace

DecodeEngine::DecodeEngine(model::Model& model, kvstore::KvBlockPool& pool,
                           const kernels::PagedKvView& kv, const DecodeEngineOptions& options,
                           worker::WorkerProbe& probe)
    : pool_(pool),
      options_(options),
      block_tokens_(kv.layout.block_tokens),
      vocabulary_size_(model.info().vocabulary_size),
      model_digest_(model.info().digest),
      numerics_class_(model.numerics_class()),
      probe_(probe),
      meter_(probe),
      inbox_(options.runner.running_max),
      runner_(std::make_unique<runner::Runner>(model, pool, kv, options.runner, nullptr)) {}

DecodeEngine::~DecodeEngine() {
  Stop();
  inbox_.Take(taken_);
  for (const InboxItem& item : taken_) {
    if (const auto* ready = std::get_if<HandoffReady>(&item)) GiveBack(ready->received);
    const auto* attempt = std::get_if<NewAttempt>(&item);
    if (attempt != nullptr && attempt->local) pool_.Unreserve(attempt->reserved_blocks);
  }
}

void DecodeEngine::Start(kvstore::HandoffReceiver& receiver, worker::RouterEvents& routers) {
  receiver_ = &receiver;
  routers_ = &routers;
  thread_.Start("decode-step", [this] { return Turn(); });
}

void DecodeEngine::Drain() { inbox_.Drain(); }

bool DecodeEngine::WaitUntilIdle(absl::Duration timeout) { return inbox_.WaitUntilIdle(timeout); }

void DecodeEngine::Abandon() { Push(AbandonAll{}); }

void DecodeEngine::Stop() { thread_.Stop(); }

uint32_t DecodeEngine::BlocksToReserve(const worker::EngineRequest& request) const {
  const uint64_t tokens = uint64_t{request.tokens.size()} +
                          std::min(request.remaining_tokens(), options_.headroom_tokens);
  return static_cast<uint32_t>((tokens + block_tokens_ - 1) / block_tokens_);
}

absl::StatusOr<uint32_t> DecodeEngine::Admit(DecodeRequest admitted) {
  worker::EngineRequest& request = admitted.request;
  if (!routers_->IsAttached(request.router)) {
    return absl::FailedPreconditionError(absl::StrCat("router_incarnation: router ",
                                                      request.router.ToHex(), " is not attached"));
  }
  const bool local = !admitted.prefill_incarnation.has_value();
  const uint32_t blocks = BlocksToReserve(request);
  const worker::AttemptKey key = request.key;
  const base::Id128 router = request.router;
  kvstore::ExpectedHandoff expected;
  if (!local) {
    const kvstore::BlockExtras extras{.model_digest = model_digest_,
                                      .numerics_class = numerics_class_,
                                      .cache_salt = request.cache_salt};
    expected = {.prefill_incarnation = *admitted.prefill_incarnation,
                .tokens = request.tokens,
                .digest_extras = extras.Encode(),
                .blocks_reserved = blocks,
                .deadline = absl::Now() + request.time_left};
  }
  absl::Status status = pool_.Reserve(blocks);
  if (!status.ok()) {
    // Offers of what is not admitted must not take the place of others while they wait for it.
    if (!local) receiver_->Decline(key);
  } else {
    status = inbox_.Enter(key, router,
                          NewAttempt{std::move(request), local, blocks, absl::Now()});
    if (!status.ok()) pool_.Unreserve(blocks);
  }
  if (!status.ok()) {
    probe_.requests_refused.Increment();
    return status;
  }
  probe_.requests_received.Increment();
  if (!local) {
    receiver_->Expect(key, std::move(expected));
    inbox_.Push(Expected{key});
  }
  thread_.Wake();
  return blocks;
}

void DecodeEngine::Cancel(const base::Id128& router, const worker::AttemptKey& key) {
  if (inbox_.Cancel(key, router, CancelAttempt{key})) thread_.Wake();
}

void DecodeEngine::DropRouter(const base::Id128& router) { Push(RouterGone{router}); }

void DecodeEngine::OnHandoffReady(const kvstore::HandoffKey& key,
                                  kvstore::ReceivedHandoff received) {
  Push(HandoffReady{key, std::move(received), absl::Now()});
}

void DecodeEngine::OnHandoffFailed(const kvstore::HandoffKey& key, const absl::Status& status) {
  Push(HandoffFailed{key, status});
}

void DecodeEngine::Push(InboxItem item) {
  inbox_.Push(std::move(item));
  thread_.Wake();
}

worker::WorkerLoad DecodeEngine::load() const {
  worker::WorkerLoad load;
  meter_.Fill(absl::Now(), load);
  const kvstore::KvPoolCounts counts = pool_.counts();
  load.blocks_free = counts.free - counts.reserved;
  load.blocks_reserved = counts.reserved;
  load.blocks_held = counts.held;
  return load;
}

absl::Duration DecodeEngine::Turn() {
  const absl::Time now = absl::Now();
  meter_.TurnStarted(now);
  events_.clear();
  TakeInbox(now);
  StopExpired(now);
  const std::vector<SequenceId> cancelled = step_inbox_.cancel;
  meter_.StepStarted(absl::Now());
  runner::StepOutbox outbox = runner_->Step(now, std::exchange(step_inbox_, {}));
  const absl::Time stepped = absl::Now();
  meter_.StepEnded(stepped, outbox, runner_->counts());
  const absl::Duration sleep = SleepAfter(outbox, stepped);
  TakeOutbox(std::move(outbox), cancelled, stepped);
  routers_->Publish(events_);
  LeaveInbox();
  meter_.TurnEnded(absl::Now());
  return sleep;
}

absl::Duration DecodeEngine::SleepAfter(const runner::StepOutbox& outbox, absl::Time now) const {
  if (!outbox.idle) return absl::ZeroDuration();
  const runner::RunnerCounts counts = runner_->counts();
  const absl::Duration left = sequences_.next_deadline() - now;
  return counts.waiting + counts.running > 0 ? std::min(left, kBlockedPause) : left;
}

void DecodeEngine::TakeInbox(absl::Time now) {
  inbox_.Take(taken_);
  for (InboxItem& item : taken_) {
    std::visit([&](auto& what) { Take(std::move(what), now); }, item);
  }
  taken_.clear();
}

void DecodeEngine::Take(NewAttempt item, absl::Time) {
  Sequence& sequence = sequences_.Add({.id = SequenceId{next_id_++},
                                       .key = item.request.key,
                                       .router = item.request.router,
                                       .deadline = item.received + item.request.time_left,
                                       .received = item.received,
                                       .local = item.local,
                                       .sample_index = item.request.sampling.sample_index,
                                       .next_position = item.request.next_position()});
  sequence.request = std::move(item.request);
  if (item.local) {
    sequence.place = Place::kRunner;
    step_inbox_.add.push_back(worker::TakeSequenceRequest(sequence.request, sequence.id));
    step_inbox_.add_reserved_blocks.push_back(item.reserved_blocks);
  }
  // It went away while the request waited for this turn.
  if (!routers_->IsAttached(sequence.router)) StopSequence(sequence);
}

void DecodeEngine::Take(const Expected& item, absl::Time) {
  Sequence* const sequence = sequences_.Find(item.key);
  if (sequence == nullptr || !sequence->stopped || sequence->place != Place::kHandoff) return;
  CancelHandoff(*sequence);
}

void DecodeEngine::Take(HandoffReady item, absl::Time) {
  Sequence* const sequence = sequences_.Find(item.key);
  if (sequence == nullptr || sequence->place != Place::kHandoff) return GiveBack(item.received);
  sequence->place = Place::kNowhere;
  if (sequence->stopped) {
    GiveBack(item.received);
    return Remove(*sequence);
  }
  const absl::Status status = CheckReceived(*sequence, item.received);
  if (!status.ok()) {
    GiveBack(item.received);
    probe_.requests_failed.Increment();
    Fail(*sequence, status);
    return Remove(*sequence);
  }
  probe_.handoff_seconds.Observe(absl::ToDoubleSeconds(item.received.seal_to_complete));
  Adopt(*sequence, std::move(item));
}

absl::Status DecodeEngine::CheckReceived(const Sequence& sequence,
                                         const kvstore::ReceivedHandoff& received) const {
  const size_t tokens = sequence.request.tokens.size();
  const size_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
  if (received.blocks.size() != blocks || received.seal.tokens != tokens) {
    return absl::DataLossError(absl::StrCat("the hand-off has ", received.blocks.size(),
                                            " blocks and ", received.seal.tokens, " tokens, want ",
                                            blocks, " and ", tokens));
  }
  const auto& first = received.seal.first_tokens;
  if (first.size() != 1 || first[0].sample_index != sequence.sample_index ||
      first[0].token >= vocabulary_size_) {
    return absl::DataLossError(absl::StrCat(
        "the hand-off has ", first.size(), " first tokens, want one of sample ",
        sequence.sample_index, " below ", vocabulary_size_));
  }
  for (const auto& [token, logprob] : first[0].top) {
    if (token < vocabulary_size_) continue;
    return absl::DataLossError(absl::StrCat("the hand-off's log-probabilities name token ", token,
                                            ", must be below ", vocabulary_size_));
  }
  return absl::OkStatus();
}

void DecodeEngine::Adopt(Sequence& sequence, HandoffReady item) {
  worker::EngineRequest& request = sequence.request;
  model::SampledToken first = worker::ToSampledToken(item.received.seal.first_tokens[0]);
  const bool stop = IsStopToken(request, first.token);
  if (stop || request.remaining_tokens() == 1) {
    // The prefill worker should have ended it there.
    worker::TokenEvent event = EventOf(sequence);
    event.tokens.push_back(std::move(first));
    event.finish = stop ? FinishReason::kStop : FinishReason::kLength;
    events_.push_back(std::move(event));
    GiveBack(item.received);
    return Remove(sequence);
  }
  sequence.place = Place::kRunner;
  sequence.kv_complete = item.at;
  sequence.handoff_took = item.received.seal_to_complete;
  request.tokens.push_back(first.token);
  sequence.first_token = std::move(first);
  step_inbox_.adopt.push_back({.request = worker::TakeSequenceRequest(request, sequence.id),
                               .blocks = std::move(item.received.blocks),
                               .reserved_blocks = item.received.reserved_left});
}

void DecodeEngine::GiveBack(const kvstore::ReceivedHandoff& received) {
  pool_.Release(received.blocks);
  if (received.reserved_left > 0) pool_.Unreserve(received.reserved_left);
}

void DecodeEngine::Take(const HandoffFailed& item, absl::Time) {
  Sequence* const sequence = sequences_.Find(item.key);
  if (sequence == nullptr || sequence->place != Place::kHandoff) return;
  sequence->place = Place::kNowhere;
  if (!sequence->stopped && EndedAtFirstToken(item.status)) {
    probe_.requests_finished.Increment();
  } else if (!sequence->stopped) {
    LOG(WARNING) << "hand-off failed" << base::LogField("request", sequence->key)
                 << base::LogField("status", item.status.ToString());
    probe_.requests_failed.Increment();
    Fail(*sequence, HandoffFailure(item.status));
  }
  Remove(*sequence);
}

void DecodeEngine::Take(const CancelAttempt& item, absl::Time) {
  Sequence* const sequence = sequences_.Find(item.key);
  if (sequence == nullptr || sequence->stopped) return;
  probe_.requests_cancelled.Increment();
  StopSequence(*sequence);
}

void DecodeEngine::Take(const RouterGone& item, absl::Time) {
  const auto its = sequences_.Where([&](const Sequence& sequence) {
    return sequence.router == item.router && !sequence.stopped;
  });
  for (const SequenceId id : its) {
    probe_.requests_cancelled.Increment();
    StopSequence(*sequences_.Find(id));
  }
}

void DecodeEngine::Take(const AbandonAll&, absl::Time) {
  const auto all = sequences_.Where([](const Sequence& sequence) { return !sequence.stopped; });
  for (const SequenceId id : all) {
    probe_.requests_failed.Increment();
    Fail(*sequences_.Find(id), absl::UnavailableError("the decode worker is shutting down"));
  }
}

void DecodeEngine::StopExpired(absl::Time now) {
  for (const SequenceId id : sequences_.TakeExpired(now)) {
    Sequence& sequence = *sequences_.Find(id);
    if (sequence.stopped) continue;
    probe_.requests_expired.Increment();
    Fail(sequence, absl::DeadlineExceededError("the deadline passed on the decode worker"));
  }
}

void DecodeEngine::StopSequence(Sequence& sequence) {
  sequence.stopped = true;
  switch (sequence.place) {
    case Place::kHandoff: return CancelHandoff(sequence);
    case Place::kRunner: return step_inbox_.cancel.push_back(sequence.id);
    case Place::kNowhere: return;
  }
}

// If the receiver does not know it yet, or no longer, Expected or the terminal event follows.
void DecodeEngine::CancelHandoff(Sequence& sequence) {
  if (receiver_->Cancel(sequence.key)) Remove(sequence);
}

void DecodeEngine::Fail(Sequence& sequence, const absl::Status& error) {
  worker::TokenEvent event = EventOf(sequence);
  event.error = error;
  events_.push_back(std::move(event));
  StopSequence(sequence);
}

void DecodeEngine::Remove(Sequence& sequence) {
  const worker::AttemptKey key = sequence.key;
  sequences_.Remove(sequence.id);
  left_.push_back(key);
}

void DecodeEngine::TakeOutbox(runner::StepOutbox outbox, absl::Span<const SequenceId> cancelled,
                              absl::Time now) {
  for (runner::TokenOutput& output : outbox.tokens) {
    Sequence& sequence = *sequences_.Find(output.id);
    const bool finished = output.finish != FinishReason::kNone;
    Tell(sequence, std::move(output), now);
    if (!finished) continue;
    probe_.requests_finished.Increment();
    Remove(sequence);
  }
  for (const runner::SequenceFailure& failure : outbox.failures) {
    Sequence& sequence = *sequences_.Find(failure.id);
    sequence.place = Place::kNowhere;
    if (!sequence.stopped) {
      probe_.requests_failed.Increment();
      Fail(sequence, failure.status);
    }
    Remove(sequence);
  }
  // The runner has taken every cancel.
  for (const SequenceId id : cancelled) {
    if (Sequence* const sequence = sequences_.Find(id)) Remove(*sequence);
  }
}

void DecodeEngine::Tell(Sequence& sequence, runner::TokenOutput output, absl::Time now) {
  CHECK(!sequence.stopped) << "a token was drawn of a cancelled sequence";
  worker::TokenEvent event = EventOf(sequence);
  if (!sequence.told) Report(sequence, output, now, event);
  sequence.told = true;
  if (sequence.first_token.has_value()) {
    event.tokens.push_back(*std::exchange(sequence.first_token, std::nullopt));
  }
  event.tokens.push_back(std::move(output.token));
  event.finish = output.finish;
  event.prompt_logprobs = std::move(output.prompt_logprobs);
  sequence.next_position += static_cast<uint32_t>(event.tokens.size());
  CHECK_EQ(sequence.next_position, output.position + 1);
  events_.push_back(std::move(event));
}

void DecodeEngine::Report(Sequence& sequence, const runner::TokenOutput& output, absl::Time now,
                          worker::TokenEvent& event) {
  if (!sequence.local) {
    const absl::Duration took = now - sequence.kv_complete;
    probe_.first_decode_seconds.Observe(absl::ToDoubleSeconds(took));
    event.decode_report =
        worker::DecodeReport{.handoff = sequence.handoff_took, .first_decode = took};
    return;
  }
  CHECK(output.first_chunk_started.has_value());
  const absl::Time started = *output.first_chunk_started;
  probe_.queue_seconds.Observe(absl::ToDoubleSeconds(started - sequence.received));
  probe_.prefill_seconds.Observe(absl::ToDoubleSeconds(now - started));
  event.prefill_report =
      worker::PrefillReport{.queue = started - sequence.received, .compute = now - started};
}

// After the routers were told: whoever waits until nothing is active may close their streams then.
void DecodeEngine::LeaveInbox() {
  for (const worker::AttemptKey& key : left_) inbox_.Leave(key);
  left_.clear();
}

worker::TokenEvent DecodeEngine::EventOf(const Sequence& sequence) const {
  return {.router = sequence.router,
          .key = sequence.key,
          .sample_index = sequence.sample_index,
          .position = sequence.next_position};
}

}  // namespace baton::decode_worker
