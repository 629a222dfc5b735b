#include "router/request_tracker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/log.h"

namespace baton::router {
namespace {

// A request that finds no room may be overtaken by smaller ones so often, then it bars the way.
constexpr uint32_t kOvertakesMax = 8;
// After a failed attempt, before the next: a peer that died takes its neighbours' links with it for
// some milliseconds.
constexpr absl::Duration kRetryDelay = absl::Milliseconds(25);
// The prefill worker's report travels on another stream than the last token.
constexpr absl::Duration kReportWait = absl::Milliseconds(500);
// How long a decode worker has to show that it got everything from a prefill worker that died.
constexpr absl::Duration kOrphanWait = absl::Milliseconds(500);

// The outcome of an attempt at one worker is of no interest elsewhere.
bool WorthRetrying(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

// What a client is told when there is no other attempt. Want of room stays what it is; all else is
// the cluster's trouble.
absl::Status Final(const absl::Status& why, absl::string_view what) {
  const std::string message = absl::StrCat(what, why.message());
  return absl::IsResourceExhausted(why) ? absl::ResourceExhaustedError(message)
                                        : absl::UnavailableError(message);
}

}  // namespace

struct RequestTracker::Request {
  Request(PreparedRequest prepared, const ServedModel& model)
      : spec(std::move(prepared.spec)),
        tokens(std::move(prepared.tokens)),
        sink(std::move(prepared.sink)),
        text_done(prepared.text_done),
        relay(std::in_place, model.tokenizer.get(), spec.stop_conditions.stop) {}

  RequestKey key() const { return {.id = spec.id, .attempt = attempt}; }
  uint32_t prompt_tokens() const { return static_cast<uint32_t>(tokens->size()); }

  RequestSpec spec;
  std::shared_ptr<const std::vector<uint32_t>> tokens;
  std::shared_ptr<AnswerSink> sink;
  absl::Time text_done;
  uint32_t max_tokens = 0;  // Known once a worker is.

  // Queue.
  uint64_t ticket = 0;
  bool in_queue = false;
  uint32_t overtaken = 0;
  absl::Time queued_since = absl::InfiniteFuture();
  absl::Time not_before = absl::InfinitePast();

  // The present attempt. A worker is null when it has no part, or no more.
  uint32_t attempt = 0;
  std::shared_ptr<const Worker> prefill;
  std::shared_ptr<const Worker> decode;
  std::shared_ptr<const Worker> computes;  // Where the registry counts the prompt.
  bool admitted = false;                   // Or needs no admission.
  bool decode_heard = false;
  absl::Status prefill_error;  // Not acted on while the admission is open.
  absl::Time placed;
  absl::Time orphaned =
      absl::InfiniteFuture();  // The prefill worker died at this time, token 1 being out.

  // All attempts.
  uint32_t failures = 0;
  uint32_t workers_lost = 0;
  std::vector<base::Id128> exclude;  // Workers that failed this request.
  // Of the attempt before, if it failed: its end may be the first sign of a worker's death.
  std::vector<std::shared_ptr<const Worker>> suspects;

  // The answer.
  std::optional<TokenRelay> relay;
  AnswerPiece piece;  // Not sent yet.
  std::optional<PrefillReport> prefill_report;
  std::optional<DecodeReport> decode_report;
  absl::Time prefill_reported, decode_reported;  // When they came.
  bool prompt_logprobs_here = false;
  bool sent = false;  // The client was sent a token.
  absl::Time first_sent, last_sent;
  absl::Time complete = absl::InfiniteFuture();  // The last token came.

  absl::Time timer = absl::InfiniteFuture();  // As entered in timers_.
};

// From the first token to the last block. It begins on one machine and ends on another, so no worker can measure all of
// it; the router saw both ends go by. The sink's own part bounds it from below. REQUIRES: a decode report.
absl::Duration RequestTracker::HandoffTime(const Request& request) {
  const DecodeReport& report = *request.decode_report;
  if (!request.prefill_report.has_value()) return report.handoff;
  return std::max(report.handoff,
                  request.decode_reported - request.prefill_reported - report.first_decode);
}

RequestTracker::RequestTracker(Context context) : context_(std::move(context)) {}
RequestTracker::~RequestTracker() { CHECK(requests_.empty()) << requests_.size() << " left"; }

// --- Queue ---

void RequestTracker::Start(PreparedRequest prepared) {
  const base::Id128 id = prepared.spec.id;
  auto owned = std::make_unique<Request>(std::move(prepared), context_.model);
  Request& request = *owned;
  CHECK(requests_.emplace(id, std::move(owned)).second);
  context_.probe.requests_waiting.Increment();
  if (request.sink->cancelled()) return Fail(request, absl::CancelledError("the client is gone"));
  request.ticket = ++tickets_;
  request.queued_since = absl::Now();
  if (TryPlace(request) != Served::kWaits) return;
  if (!QueueHasRoom(request)) {
    return Fail(request, absl::ResourceExhaustedError(absl::StrCat(
                             "all workers are busy and the queue is full: at most ",
                             context_.limits.queue_tokens_max, " prompt tokens may wait")));
  }
  Enqueue(request);
}

RequestTracker::Served RequestTracker::TryPlace(Request& request) {
  const absl::Time now = absl::Now();
  if (now < request.not_before) return Served::kWaits;
  const uint32_t context_tokens = context_.registry.context_tokens();
  if (context_tokens > 0) {
    const absl::StatusOr<uint32_t> max_tokens = ResolveMaxTokens(
        request.prompt_tokens(), request.spec.stop_conditions.max_tokens, context_tokens);
    if (!max_tokens.ok()) {
      Fail(request, max_tokens.status());
      return Served::kEnded;
    }
    request.max_tokens = *max_tokens;
  }
  absl::StatusOr<WorkerRegistry::Placed> placed = context_.registry.Place(
      {.prompt_tokens = request.prompt_tokens(), .max_tokens = request.max_tokens},
      request.exclude);
  if (placed.ok()) {
    Dequeue(request);
    Dispatch(request, *std::move(placed));
    return Served::kPlaced;
  }
  const bool may_wait =
      absl::IsResourceExhausted(placed.status()) ||
      (absl::IsUnavailable(placed.status()) && now < context_.limits.workers_expected);
  if (may_wait) return Served::kWaits;
  const bool never_fits = absl::IsOutOfRange(placed.status());
  Fail(request,
       never_fits ? absl::ResourceExhaustedError(placed.status().message()) : placed.status());
  return Served::kEnded;
}

bool RequestTracker::QueueHasRoom(const Request& request) const {
  return context_.queue_tokens.load() + request.prompt_tokens() <= context_.limits.queue_tokens_max;
}

void RequestTracker::Enqueue(Request& request) {
  if (!request.in_queue) {
    request.in_queue = true;
    queue_.emplace(request.ticket, &request);
    queued_.fetch_add(1);
    context_.queue_tokens.fetch_add(request.prompt_tokens());
    context_.probe.queue_tokens.Increment(request.prompt_tokens());
  }
  Schedule(request);
}

void RequestTracker::Dequeue(Request& request) {
  if (!request.in_queue) return;
  request.in_queue = false;
  queue_.erase(request.ticket);
  queued_.fetch_sub(1);
  context_.queue_tokens.fetch_sub(request.prompt_tokens());
  context_.probe.queue_tokens.Decrement(request.prompt_tokens());
}

void RequestTracker::ServeQueue() {
  std::vector<Request*> overtaken;
  const absl::Time now = absl::Now();
  for (auto next = queue_.begin(); next != queue_.end();) {
    Request& request = *next->second;
    const uint64_t ticket = next->first;
    if (now < request.not_before) {
      ++next;
      continue;
    }
    const Served served = TryPlace(request);
    next = queue_.upper_bound(ticket);
    if (served == Served::kPlaced) {
      for (Request* waiting : overtaken) ++waiting->overtaken;
    }
    if (served != Served::kWaits) continue;
    if (request.overtaken >= kOvertakesMax || overtaken.size() >= kOvertakesMax) return;
    overtaken.push_back(&request);
  }
}

// --- Attempts ---

void RequestTracker::Dispatch(Request& request, WorkerRegistry::Placed placed) {
  ++request.attempt;
  if (request.attempt > 1) context_.probe.retries.Increment();
  request.prefill = std::move(placed.prefill);
  request.decode = std::move(placed.decode);
  request.computes = request.prefill != nullptr ? request.prefill : request.decode;
  request.admitted = request.decode == nullptr;
  request.decode_heard = false;
  request.prefill_error = absl::OkStatus();
  request.suspects.clear();
  request.placed = absl::Now();
  EngineRequest engine{.key = request.key(),
                       .router_incarnation = context_.router_incarnation,
                       .tokens = request.tokens,
                       .sampling = request.spec.sampling,
                       .max_tokens = request.max_tokens,
                       .stop_token_ids = request.spec.stop_conditions.stop_token_ids,
                       .logprob_options = request.spec.logprob_options,
                       .deadline = request.spec.deadline};
  if (!request.spec.stop_conditions.ignore_eos) {
    engine.stop_token_ids.insert(engine.stop_token_ids.end(),
                                 context_.model.end_of_sequence_ids.begin(),
                                 context_.model.end_of_sequence_ids.end());
  }
  const auto reply_to = [this, key = request.key()](Leg leg, std::shared_ptr<const Worker> worker) {
    return [this, key, leg, worker = std::move(worker)](absl::Status status) mutable {
      context_.lane.Post([this, key, leg, worker = std::move(worker), status = std::move(status)] {
        OnReply(key, leg, *worker, status);
      });
    };
  };
  Schedule(request);
  const std::shared_ptr<const Worker> prefill = request.prefill;
  const std::shared_ptr<const Worker> decode = request.decode;
  if (decode != nullptr) {
    decode->calls->Admit(engine, prefill == nullptr ? nullptr : &prefill->hello,
                         reply_to(Leg::kDecode, decode));
  }
  if (prefill != nullptr) {
    prefill->calls->Prefill(engine, decode == nullptr ? nullptr : &decode->hello,
                            reply_to(Leg::kPrefill, prefill));
  }
}

void RequestTracker::OnReply(const RequestKey& key, Leg leg, const Worker& worker,
                             const absl::Status& status) {
  Request* request = Find(key.id);
  const bool current = request != nullptr && !request->in_queue && request->attempt == key.attempt;
  if (!current) {
    // The cancel may have overtaken the call: once more, now that the worker knows the attempt. A
    // call without an answer in time may have arrived as well.
    if (status.ok() || absl::IsDeadlineExceeded(status)) worker.connection->Cancel(key);
    return;
  }
  if ((leg == Leg::kPrefill ? request->prefill : request->decode).get() != &worker) return;
  if (status.ok()) {
    if (leg == Leg::kPrefill) return;
    request->admitted = true;
    if (!request->prefill_error.ok() && !request->decode_heard) {
      const absl::Status why = request->prefill_error;
      return OnFailure(*request, nullptr, why);
    }
    Send(*request, absl::Now());
    return EndIfComplete(*request, absl::Now());
  }
  if (absl::IsResourceExhausted(status)) return OnRefusal(*request, worker);
  if (absl::IsInvalidArgument(status)) return Fail(*request, status);
  if (request->decode_heard) return;  // Both did their part, whatever became of the call.
  OnFailure(*request, &worker, status);
}

void RequestTracker::OnRefusal(Request& request, const Worker& worker) {
  if (request.sent) {
    return Fail(request,
                absl::UnavailableError("a worker refused the request in the middle of its answer"));
  }
  const uint64_t tokens = uint64_t{request.prompt_tokens()} + request.max_tokens;
  EndAttempt(request, /*cancel_workers=*/true);
  context_.registry.NoteRefusal(worker, tokens);
  Requeue(request, absl::InfinitePast());
}

void RequestTracker::OnFailure(Request& request, const Worker* exclude, const absl::Status& why) {
  ++request.failures;
  if (exclude != nullptr) request.exclude.push_back(exclude->hello.incarnation);
  LOG(WARNING) << "attempt failed" << base::LogField("request", request.spec.id)
               << base::LogField("attempt", request.attempt) << base::LogField("why", why);
  if (request.sent) return Fail(request, Final(why, "the answer broke off: "));
  if (request.workers_lost >= context_.limits.workers_lost_max) {
    return Fail(request, Quarantined(request));
  }
  if (request.failures >= context_.limits.failures_max) {
    return Fail(request,
                Final(why, absl::StrCat(request.failures, " attempts failed, the last one: ")));
  }
  request.suspects.clear();
  for (const auto& worker : {request.prefill, request.decode}) {
    if (worker != nullptr) request.suspects.push_back(worker);
  }
  Requeue(request, absl::Now() + kRetryDelay);
}

absl::Status RequestTracker::Quarantined(const Request& request) {
  return absl::UnavailableError(
      absl::StrCat(request.workers_lost,
                   " workers were lost while they computed this prompt: it is not tried again"));
}

void RequestTracker::OnEngineError(Request& request, Leg leg, const absl::Status& why) {
  // Once the decode worker has spoken it holds all it needs.
  if (leg == Leg::kPrefill && request.decode_heard) return;
  if (!WorthRetrying(why)) return Fail(request, why);
  if (leg == Leg::kPrefill && !request.admitted) {
    // A refused admission ends the hand-off too, and this may be heard of first: a refusal is no
    // failure.
    request.prefill_error = why;
    return;
  }
  OnFailure(request, nullptr, why);
}

void RequestTracker::OnWorkerLost(const Worker& worker) {
  const absl::Status why =
      absl::UnavailableError(absl::StrCat("worker ", worker.hello.address, " is gone"));
  std::vector<Request*> all;
  all.reserve(requests_.size());
  for (const auto& [id, request] : requests_) all.push_back(request.get());
  for (Request* request : all) {
    if (request->decode.get() == &worker) {
      ++request->workers_lost;
      OnFailure(*request, nullptr, why);
    } else if (request->prefill.get() == &worker) {
      OnPrefillLost(*request, why);
    } else {
      OnSuspectLost(*request, worker);
    }
  }
}

// An attempt failed a moment ago, and this was why.
void RequestTracker::OnSuspectLost(Request& request, const Worker& worker) {
  const size_t lost = std::erase_if(
      request.suspects,
      [&](const std::shared_ptr<const Worker>& suspect) { return suspect.get() == &worker; });
  if (lost == 0) return;
  ++request.workers_lost;
  if (request.in_queue && request.workers_lost >= context_.limits.workers_lost_max) {
    Fail(request, Quarantined(request));
  }
}

void RequestTracker::OnPrefillLost(Request& request, const absl::Status& why) {
  request.prefill = nullptr;
  const bool all_there =
      request.prompt_logprobs_here || !request.spec.logprob_options.prompt_logprobs.has_value();
  if (request.decode_heard && all_there) return EndIfComplete(request, absl::Now());
  if (!request.sent) {
    ++request.workers_lost;
    return OnFailure(request, nullptr, why);
  }
  request.orphaned = absl::Now();
  Schedule(request);
}

// A refused or failed request keeps its ticket: it goes to where it was in the queue.
void RequestTracker::Requeue(Request& request, absl::Time not_before) {
  EndAttempt(request, /*cancel_workers=*/true);
  request.relay.emplace(context_.model.tokenizer.get(), request.spec.stop_conditions.stop);
  request.piece.Clear();
  request.prefill_report.reset();
  request.decode_report.reset();
  request.prompt_logprobs_here = false;
  request.complete = absl::InfiniteFuture();
  request.orphaned = absl::InfiniteFuture();
  request.not_before = not_before;
  request.queued_since = absl::Now();
  if (TryPlace(request) == Served::kWaits) Enqueue(request);
}

void RequestTracker::EndAttempt(Request& request, bool cancel_workers) {
  EndPromptCount(request);
  for (const Worker* worker : {request.prefill.get(), request.decode.get()}) {
    if (worker != nullptr && cancel_workers) worker->connection->Cancel(request.key());
  }
  const bool freed = request.decode != nullptr;
  if (freed) context_.registry.EndDecode(*request.decode, request.admitted);
  request.prefill = nullptr;
  request.decode = nullptr;
  if (freed) context_.on_capacity();
}

void RequestTracker::EndPromptCount(Request& request) {
  if (request.computes == nullptr) return;
  context_.registry.EndPrefill(*request.computes, request.prompt_tokens());
  request.computes = nullptr;
}

// --- Relay ---

void RequestTracker::OnStepBatch(const StepBatch& batch) {
  const absl::Time now = absl::Now();
  for (const TokenEvent& event : batch.events) OnEvent(batch, event, now);
}

void RequestTracker::OnEvent(const StepBatch& batch, const TokenEvent& event, absl::Time now) {
  Request* const request = Find(event.key.id);
  if (request == nullptr) return;  // Of another lane, or late.
  const auto is_from = [&](const std::shared_ptr<const Worker>& worker) {
    return worker != nullptr && worker->hello.incarnation == batch.worker;
  };
  const bool from_decode = is_from(request->decode);
  if (event.key.attempt != request->attempt || (!from_decode && !is_from(request->prefill))) {
    return context_.probe.CountDropped(DropReason::kOldAttempt);
  }
  if (event.extras != nullptr && !event.extras->error.ok()) {
    return OnEngineError(*request, from_decode ? Leg::kDecode : Leg::kPrefill, event.extras->error);
  }
  if (from_decode) {
    request->decode_heard = true;
    request->admitted = true;
    request->orphaned = absl::InfiniteFuture();
  }
  if (event.extras != nullptr) TakeReports(*request, *event.extras, now);
  Relay(*request, batch, event, now);
}

void RequestTracker::TakeReports(Request& request, const EventExtras& extras, absl::Time now) {
  if (extras.prefill_report.has_value()) {
    request.prefill_report = extras.prefill_report;
    request.prefill_reported = now;
  }
  if (extras.decode_report.has_value()) {
    request.decode_report = extras.decode_report;
    request.decode_reported = now;
  }
  if (!extras.prompt_logprobs.empty() && !request.prompt_logprobs_here) {
    request.prompt_logprobs_here = true;
    request.piece.prompt_logprobs = extras.prompt_logprobs;
  }
}

void RequestTracker::Relay(Request& request, const StepBatch& batch, const TokenEvent& event,
                           absl::Time now) {
  const uint64_t duplicates = request.relay->duplicates();
  TokenRelay::Tokens tokens{.ids = batch.TokensOf(event),
                            .position = event.position,
                            .finish_reason = event.finish_reason};
  if (event.extras != nullptr) tokens.logprobs = event.extras->logprobs;
  const absl::Status accepted = request.relay->Accept(tokens, request.piece);
  if (!accepted.ok()) return Fail(request, accepted);
  const uint64_t again = request.relay->duplicates() - duplicates;
  if (again > 0) context_.probe.CountDropped(DropReason::kDuplicate, static_cast<double>(again));
  if (request.relay->tokens_relayed() > 0) EndPromptCount(request);
  if (request.relay->finish_reason() == FinishReason::kNone) return Send(request, now);
  request.complete = std::min(request.complete, now);
  EndIfComplete(request, now);
}

bool RequestTracker::MaySend(const Request& request) const {
  const bool prompt_logprobs_due =
      request.spec.logprob_options.prompt_logprobs.has_value() && !request.prompt_logprobs_here;
  return request.admitted && !prompt_logprobs_due;
}

void RequestTracker::Send(Request& request, absl::Time now) {
  if (request.piece.tokens.empty() || !MaySend(request)) return;
  if (request.relay->finish_reason() != FinishReason::kNone) return;  // With the last message.
  NoteSent(request, now);
  request.sink->Write(request.piece, nullptr);
  request.piece.Clear();
}

void RequestTracker::NoteSent(Request& request, absl::Time now) {
  const size_t tokens = request.piece.tokens.size();
  if (tokens == 0) return;
  if (!request.sent) {
    request.sent = true;
    request.first_sent = now;
    context_.probe.time_to_first_token.Observe(absl::ToDoubleSeconds(now - request.spec.arrival));
    context_.probe.requests_waiting.Decrement();
    context_.probe.requests_running.Increment();
  } else {
    const double each =
        absl::ToDoubleSeconds(now - request.last_sent) / static_cast<double>(tokens);
    for (size_t i = 0; i < tokens; ++i) context_.probe.inter_token.Observe(each);
  }
  request.last_sent = now;
}

void RequestTracker::EndIfComplete(Request& request, absl::Time now) {
  if (request.relay->finish_reason() == FinishReason::kNone || !MaySend(request)) return;
  const bool report_due = request.prefill != nullptr && !request.prefill_report.has_value();
  if (report_due && now < request.complete + kReportWait) return Schedule(request);
  Succeed(request, now);
}

// --- Ends ---

void RequestTracker::Succeed(Request& request, absl::Time now) {
  NoteSent(request, now);
  AnswerEnding ending{.finish_reason = request.relay->finish_reason(),
                      .usage = {.prompt_tokens = request.prompt_tokens(),
                                .completion_tokens = request.relay->tokens_relayed(),
                                .seed = request.spec.sampling.seed.value_or(0)},
                      .timings = {.text = request.text_done - request.spec.arrival,
                                  .queue = request.placed - request.text_done,
                                  .time_to_first_token = request.first_sent - request.spec.arrival,
                                  .total = now - request.spec.arrival}};
  if (request.prefill_report.has_value()) {
    ending.usage.cached_tokens = request.prefill_report->cached_tokens;
    ending.timings.prefill_queue = request.prefill_report->queue;
    ending.timings.prefill = request.prefill_report->compute;
  }
  if (request.decode_report.has_value()) {
    ending.timings.handoff = HandoffTime(request);
    ending.timings.first_decode = request.decode_report->first_decode;
  }
  // The workers know of every end but of one by a stop string. A decode worker that was not heard
  // of may still wait for a hand-off that will not come.
  const bool cancel =
      request.relay->stopped_by_text() || (request.decode != nullptr && !request.decode_heard);
  const Outcome outcome =
      ending.finish_reason == FinishReason::kLength ? Outcome::kLength : Outcome::kStop;
  context_.probe.CountOutcome(outcome);
  context_.probe.CountAnswer(ending);
  LOG(INFO) << "request ended" << base::LogField("request", request.spec.id)
            << base::LogField("client_request", request.spec.client_request_id)
            << base::LogField("outcome", NameOf(outcome))
            << base::LogField("attempt", request.attempt)
            << base::LogField("prompt_tokens", ending.usage.prompt_tokens)
            << base::LogField("completion_tokens", ending.usage.completion_tokens)
            << base::LogField("ttft", *ending.timings.time_to_first_token)
            << base::LogField("total", *ending.timings.total);
  request.sink->Write(request.piece, &ending);
  EndAttempt(request, cancel);
  Erase(request);
}

void RequestTracker::Fail(Request& request, const absl::Status& status) {
  const Outcome outcome = OutcomeOf(status);
  context_.probe.CountOutcome(outcome);
  LOG(INFO) << "request ended" << base::LogField("request", request.spec.id)
            << base::LogField("client_request", request.spec.client_request_id)
            << base::LogField("outcome", NameOf(outcome))
            << base::LogField("attempt", request.attempt)
            << base::LogField("prompt_tokens", request.prompt_tokens())
            << base::LogField("completion_tokens", request.relay->tokens_relayed())
            << base::LogField("why", status.message());
  request.sink->Fail(status);
  EndAttempt(request, /*cancel_workers=*/true);
  Erase(request);
}

void RequestTracker::Erase(Request& request) {
  Dequeue(request);
  if (request.timer != absl::InfiniteFuture()) timers_.erase({request.timer, request.spec.id});
  (request.sent ? context_.probe.requests_running : context_.probe.requests_waiting).Decrement();
  const base::Id128 id = request.spec.id;
  requests_.erase(id);
  context_.on_end();
}

void RequestTracker::Cancel(const base::Id128& id, const absl::Status& why) {
  if (Request* request = Find(id)) Fail(*request, why);
}

void RequestTracker::FailAll(const absl::Status& status) {
  while (!requests_.empty()) Fail(*requests_.begin()->second, status);
}

// --- Timers ---

void RequestTracker::Schedule(Request& request) {
  const absl::Time now = absl::Now();
  absl::Time next = request.spec.deadline;
  if (request.in_queue) {
    next = std::min(next, request.queued_since + context_.limits.queue_wait_max);
    for (const absl::Time retry : {request.not_before, context_.limits.workers_expected}) {
      if (retry > now) next = std::min(next, retry);
    }
  }
  for (const absl::Time wait : {request.orphaned + kOrphanWait, request.complete + kReportWait}) {
    if (wait > now) next = std::min(next, wait);
  }
  if (next == request.timer) return;
  if (request.timer != absl::InfiniteFuture()) timers_.erase({request.timer, request.spec.id});
  request.timer = next;
  if (next == absl::InfiniteFuture()) return;
  timers_.emplace(next, request.spec.id);
  context_.lane.SetAlarm(timers_.begin()->first);
}

void RequestTracker::OnAlarm() {
  const absl::Time now = absl::Now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const base::Id128 id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Request* request = Find(id);
    CHECK(request != nullptr);
    request->timer = absl::InfiniteFuture();
    OnTimer(*request, now);
  }
  context_.lane.SetAlarm(timers_.empty() ? absl::InfiniteFuture() : timers_.begin()->first);
}

void RequestTracker::OnTimer(Request& request, absl::Time now) {
  if (now >= request.spec.deadline) {
    return Fail(request, absl::DeadlineExceededError("the request's deadline passed"));
  }
  if (request.in_queue) {
    if (now >= request.queued_since + context_.limits.queue_wait_max) {
      return Fail(request, absl::ResourceExhaustedError(
                               absl::StrCat("all workers were busy for ",
                                            absl::FormatDuration(context_.limits.queue_wait_max))));
    }
    if (TryPlace(request) == Served::kWaits) Schedule(request);
    return;
  }
  if (now >= request.orphaned + kOrphanWait) {
    return Fail(request, absl::UnavailableError(
                             "the prefill worker was lost before its KV was handed over"));
  }
  Schedule(request);
  EndIfComplete(request, now);
}

RequestTracker::Request* RequestTracker::Find(const base::Id128& id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

}  // namespace baton::router
