#include "prefill_worker/prefill_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/block_hash.h"
#include "worker/engine_request.h"
#include "worker/handoff_tokens.h"

namespace baton::prefill_worker {
namespace {

using runner::FinishReason;
using runner::SequenceId;

// How long to wait when sequences want blocks that are pinned for peers: their return also wakes the thread.
constexpr absl::Duration kBlockedPause = absl::Milliseconds(10);

// As the router should hear of a hand-off that failed: another try elsewhere may do.
absl::Status HandoffFailure(const absl::Status& status) {
  const absl::StatusCode code = status.code() == absl::StatusCode::kFailedPrecondition
                                    ? absl::StatusCode::kFailedPrecondition
                                    : absl::StatusCode::kUnavailable;
  return absl::Status(code, absl::StrCat("hand-off to the decode worker failed: ",
                                         status.message()));
}

}  // namespace

PrefillEngine::PrefillEngine(model::Model& model, kvstore::KvBlockPool& pool,
                             const kernels::PagedKvView& kv, const PrefillEngineOptions& options,
                             worker::WorkerProbe& probe)
    : pool_(pool),
      block_tokens_(kv.layout.block_tokens),
      model_digest_(model.info().digest),
      numerics_class_(model.numerics_class()),
      probe_(probe),
      meter_(probe),
      budget_(options.queue_max),
      inbox_(options.queue_max.requests + kHandoffsMax),
      runner_(std::make_unique<runner::Runner>(model, pool, kv, options.runner,
                                               static_cast<runner::StepObserver*>(this))) {}

PrefillEngine::~PrefillEngine() {
  Stop();
  for (const SequenceId id : sequences_.Where([](const Sequence&) { return true; })) {
    pool_.Release(sequences_.Find(id)->blocks);
  }
}

void PrefillEngine::Start(kvstore::HandoffSender& sender, worker::RouterEvents& routers) {
  sender_ = &sender;
  routers_ = &routers;
  thread_.Start("prefill-step", [this] { return Turn(); });
}

void PrefillEngine::Drain() { inbox_.Drain(); }

bool PrefillEngine::WaitUntilIdle(absl::Duration timeout) { return inbox_.WaitUntilIdle(timeout); }

void PrefillEngine::Abandon() { Push(AbandonAll{}); }

void PrefillEngine::Stop() { thread_.Stop(); }

absl::Status PrefillEngine::Submit(PrefillRequest request) {
  const absl::Status status = Enter(std::move(request));
  (status.ok() ? probe_.requests_received : probe_.requests_refused).Increment();
  if (status.ok()) thread_.Wake();
  return status;
}

absl::Status PrefillEngine::Enter(PrefillRequest submitted) {
  const worker::EngineRequest& request = submitted.request;
  if (!submitted.peer.has_value() && request.remaining_tokens() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode_address is empty, must be set: ", request.remaining_tokens(),
                     " tokens are wanted and only one is drawn here"));
  }
  if (!routers_->IsAttached(request.router)) {
    return absl::FailedPreconditionError(absl::StrCat("router_incarnation: router ",
                                                      request.router.ToHex(), " is not attached"));
  }
  const auto tokens = static_cast<uint32_t>(request.tokens.size());
  const uint32_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
  const uint32_t total = pool_.counts().total;
  if (blocks > total) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "tokens is ", tokens, " long and needs ", blocks, " KV blocks, this worker has ", total));
  }
  RETURN_IF_ERROR(budget_.Enter(tokens));
  const worker::AttemptKey key = request.key;
  const base::Id128 router = request.router;
  const absl::Status entered =
      inbox_.Enter(key, router, NewAttempt{std::move(submitted), absl::Now()});
  if (!entered.ok()) {
    budget_.HandToRunner({.requests = 1, .tokens = tokens});
    budget_.Leave(tokens);
  }
  return entered;
}

void PrefillEngine::Cancel(const base::Id128& router, const worker::AttemptKey& key) {
  if (inbox_.Cancel(key, router, CancelAttempt{key})) thread_.Wake();
}

void PrefillEngine::DropRouter(const base::Id128& router) { Push(RouterGone{router}); }

void PrefillEngine::OnHandoffEnded(const kvstore::HandoffKey& key, const absl::Status& status) {
  Push(HandoffEnded{key, status});
}

void PrefillEngine::Push(InboxItem item) {
  inbox_.Push(std::move(item));
  thread_.Wake();
}

worker::WorkerLoad PrefillEngine::load() const {
  worker::WorkerLoad load;
  meter_.Fill(absl::Now(), load);
  const kvstore::KvPoolCounts counts = pool_.counts();
  load.blocks_free = counts.free - counts.reserved;
  load.blocks_reserved = counts.reserved;
  load.blocks_held = counts.held;
  load.blocks_pinned = blocks_pinned_.load(std::memory_order_relaxed);
  const kvstore::HandoffSender::Pins pins = sender_->pins();
  load.owed_bytes = pins.owed_bytes;
  load.oldest_pin_age = pins.oldest_age;
  const QueueSize before_runner = budget_.before_runner();
  load.queued_requests += before_runner.requests;
  load.queued_tokens += static_cast<uint32_t>(before_runner.tokens);
  return load;
}

absl::Duration PrefillEngine::Turn() {
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
  budget_.HandToRunner(std::exchange(taken_size_, {}));
  const absl::Duration sleep = SleepAfter(outbox, stepped);
  TakeOutbox(std::move(outbox), cancelled, stepped);
  routers_->Publish(events_);
  SealThoseDrawn();
  LeaveInbox();
  meter_.TurnEnded(absl::Now());
  return sleep;
}

absl::Duration PrefillEngine::SleepAfter(const runner::StepOutbox& outbox, absl::Time now) const {
  if (!outbox.idle) return absl::ZeroDuration();
  const runner::RunnerCounts counts = runner_->counts();
  const absl::Duration left = sequences_.next_deadline() - now;
  return counts.waiting + counts.running > 0 ? std::min(left, kBlockedPause) : left;
}

void PrefillEngine::TakeInbox(absl::Time now) {
  inbox_.Take(taken_);
  for (InboxItem& item : taken_) {
    std::visit([&](auto& what) { Take(std::move(what), now); }, item);
  }
}

void PrefillEngine::Take(NewAttempt item, absl::Time) {
  worker::EngineRequest& request = item.request.request;
  Sequence& sequence =
      sequences_.Add({.id = SequenceId{next_id_++},
                      .key = request.key,
                      .router = request.router,
                      .deadline = item.received + request.time_left,
                      .received = item.received,
                      .prompt_tokens = static_cast<uint32_t>(request.tokens.size()),
                      .sample_index = request.sampling.sample_index,
                      .next_position = request.next_position()});
  ++taken_size_.requests;
  taken_size_.tokens += sequence.prompt_tokens;
  runner::SequenceRequest to_run = worker::TakeSequenceRequest(request, sequence.id);
  if (item.request.peer.has_value()) {
    to_run.hand_off = true;
    sequence.handing_off = true;
    sequence.prompt = to_run.tokens;
    sequence.cache_salt = std::move(request.cache_salt);
    sender_->Begin(sequence.key, *item.request.peer, sequence.prompt_tokens);
  }
  step_inbox_.add.push_back(std::move(to_run));
  // It went away while the request waited for this turn.
  if (!routers_->IsAttached(sequence.router)) {
    StopSequence(sequence, absl::CancelledError("the router is gone"));
  }
}

void PrefillEngine::Take(const CancelAttempt& item, absl::Time) {
  Sequence* const sequence = sequences_.Find(item.key);
  if (sequence == nullptr || sequence->stopped) return;
  probe_.requests_cancelled.Increment();
  StopSequence(*sequence, absl::CancelledError("cancelled by the router"));
}

void PrefillEngine::Take(const RouterGone& item, absl::Time) {
  const auto its = sequences_.Where([&](const Sequence& sequence) {
    return sequence.router == item.router && !sequence.stopped;
  });
  for (const SequenceId id : its) {
    probe_.requests_cancelled.Increment();
    StopSequence(*sequences_.Find(id), absl::CancelledError("the router is gone"));
  }
}

void PrefillEngine::Take(const HandoffEnded& item, absl::Time now) {
  Sequence* const sequence = sequences_.Find(item.key);
  if (sequence == nullptr || !sequence->handing_off) return;
  sequence->handing_off = false;
  if (item.status.ok() && !sequence->stopped) {
    probe_.requests_handed_over.Increment();
    probe_.handoff_seconds.Observe(absl::ToDoubleSeconds(now - sequence->sealed));
    sequence->stopped = true;
  } else if (!sequence->stopped) {
    LOG(WARNING) << "hand-off failed" << base::LogField("request", sequence->key)
                 << base::LogField("status", item.status.ToString());
    probe_.requests_failed.Increment();
    Fail(*sequence, HandoffFailure(item.status));
  }
  RemoveIfOver(*sequence);
}

void PrefillEngine::Take(const AbandonAll&, absl::Time) {
  const auto all =
      sequences_.Where([](const Sequence& sequence) { return !sequence.stopped; });
  for (const SequenceId id : all) {
    probe_.requests_failed.Increment();
    Fail(*sequences_.Find(id), absl::UnavailableError("the prefill worker is shutting down"));
  }
}

void PrefillEngine::StopExpired(absl::Time now) {
  for (const SequenceId id : sequences_.TakeExpired(now)) {
    Sequence& sequence = *sequences_.Find(id);
    // What is sealed is on its way to the decode worker, which has the same deadline.
    if (sequence.stopped || !sequence.in_runner) continue;
    probe_.requests_expired.Increment();
    Fail(sequence, absl::DeadlineExceededError("the deadline passed during prefill"));
  }
}

void PrefillEngine::StopSequence(Sequence& sequence, const absl::Status& reason) {
  sequence.stopped = true;
  if (sequence.in_runner) step_inbox_.cancel.push_back(sequence.id);
  if (sequence.handing_off) sender_->Abort(sequence.key, reason);
}

void PrefillEngine::Fail(Sequence& sequence, const absl::Status& error) {
  worker::TokenEvent event = EventOf(sequence);
  event.error = error;
  events_.push_back(std::move(event));
  StopSequence(sequence, error);
}

void PrefillEngine::OnBlocksWritten(SequenceId id, uint32_t layer, uint32_t first_block,
                                    absl::Span<const kvstore::KvBlockId> blocks) {
  const Sequence* const sequence = sequences_.Find(id);
  CHECK(sequence != nullptr);
  // Ended by the peer already: it will be cancelled in the next turn, and the sender ignores what is announced.
  sender_->Announce(sequence->key, layer, first_block, blocks);
}

void PrefillEngine::TakeOutbox(runner::StepOutbox outbox, absl::Span<const SequenceId> cancelled,
                               absl::Time now) {
  for (runner::TokenOutput& output : outbox.tokens) {
    Sequence& sequence = *sequences_.Find(output.id);
    TakeFirstToken(sequence, std::move(output), now);
    if (!sequence.handing_off) sequence.in_runner = false;
  }
  for (runner::HandedOver& handed : outbox.handed_over) {
    Sequence& sequence = *sequences_.Find(handed.id);
    sequence.in_runner = false;
    sequence.blocks = std::move(handed.blocks);
    blocks_pinned_ += static_cast<uint32_t>(sequence.blocks.size());
  }
  for (const runner::SequenceFailure& failure : outbox.failures) {
    Sequence& sequence = *sequences_.Find(failure.id);
    sequence.in_runner = false;
    probe_.requests_failed.Increment();
    Fail(sequence, failure.status);
  }
  // The runner has taken every cancel: what it said nothing of is gone from it without a word.
  const auto settle = [this](SequenceId id) {
    Sequence* const sequence = sequences_.Find(id);
    if (sequence == nullptr) return;
    LeaveQueue(*sequence);
    RemoveIfOver(*sequence);
  };
  for (const SequenceId id : cancelled) {
    if (Sequence* const sequence = sequences_.Find(id)) sequence->in_runner = false;
    settle(id);
  }
  for (const runner::TokenOutput& output : outbox.tokens) settle(output.id);
  for (const runner::HandedOver& handed : outbox.handed_over) settle(handed.id);
  for (const runner::SequenceFailure& failure : outbox.failures) settle(failure.id);
}

void PrefillEngine::TakeFirstToken(Sequence& sequence, runner::TokenOutput output,
                                   absl::Time now) {
  CHECK(!sequence.stopped) << "a token was drawn of a cancelled sequence";
  CHECK(output.first_chunk_started.has_value());
  const absl::Time started = *output.first_chunk_started;
  probe_.queue_seconds.Observe(absl::ToDoubleSeconds(started - sequence.received));
  probe_.prefill_seconds.Observe(absl::ToDoubleSeconds(now - started));

  worker::TokenEvent event = EventOf(sequence);
  event.finish = output.finish;
  event.prefill_report =
      worker::PrefillReport{.queue = started - sequence.received, .compute = now - started};
  event.prompt_logprobs = std::move(output.prompt_logprobs);
  const bool finished = output.finish != FinishReason::kNone;
  if (!finished) {
    to_seal_.emplace_back(sequence.id, worker::ToFirstToken(output.token, sequence.sample_index));
  }
  event.tokens.push_back(std::move(output.token));
  events_.push_back(std::move(event));
  ++sequence.next_position;
  if (!finished) return;
  probe_.requests_finished.Increment();
  sequence.stopped = true;
  if (sequence.handing_off) sender_->Abort(sequence.key, absl::OkStatus());
}

// After the router was told: what the decode worker says next must not come before it.
void PrefillEngine::SealThoseDrawn() {
  for (auto& [id, first_token] : to_seal_) {
    Sequence& sequence = *sequences_.Find(id);
    const kvstore::BlockExtras extras{.model_digest = model_digest_,
                                      .numerics_class = numerics_class_,
                                      .cache_salt = sequence.cache_salt};
    std::vector<std::string> digests =
        kvstore::BlockDigests(sequence.prompt, block_tokens_, extras.Encode());
    sequence.sealed = absl::Now();
    sender_->Seal(sequence.key,
                  {.tokens = static_cast<uint32_t>(sequence.prompt.size()),
                   .last_block_digest = digests.empty() ? "" : std::move(digests.back()),
                   .first_tokens = {std::move(first_token)}});
    sequence.prompt = {};
  }
  to_seal_.clear();
}

void PrefillEngine::LeaveQueue(Sequence& sequence) {
  if (sequence.prompt_tokens > 0) budget_.Leave(std::exchange(sequence.prompt_tokens, 0));
}

void PrefillEngine::RemoveIfOver(Sequence& sequence) {
  if (sequence.in_runner || sequence.handing_off) return;
  pool_.Release(sequence.blocks);
  blocks_pinned_ -= static_cast<uint32_t>(sequence.blocks.size());
  const worker::AttemptKey key = sequence.key;
  sequences_.Remove(sequence.id);
  left_.push_back(key);
}

// After the routers were told: whoever waits until nothing is active may close their streams then.
void PrefillEngine::LeaveInbox() {
  for (const worker::AttemptKey& key : left_) inbox_.Leave(key);
  left_.clear();
}

worker::TokenEvent PrefillEngine::EventOf(const Sequence& sequence) const {
  return {.router = sequence.router,
          .key = sequence.key,
          .sample_index = sequence.sample_index,
          .position = sequence.next_position};
}

}  // namespace baton::prefill_worker
