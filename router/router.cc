#include "router/router.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace baton::router {
namespace {

constexpr absl::Duration kWatchPeriod = absl::Milliseconds(100);
// For streams whose status is on its way when the router stops.
constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();
constexpr absl::Duration kStopGrace = absl::Seconds(1);

// What a prompt holds and what text threads will work through.
int64_t BytesOf(const Prompt& prompt) {
  if (const auto* text = std::get_if<TextPrompt>(&prompt))
    return static_cast<int64_t>(text->text.size());
  if (const auto* ids = std::get_if<TokenPrompt>(&prompt)) {
    return static_cast<int64_t>(ids->ids.size() * sizeof(uint32_t));
  }
  int64_t bytes = 0;
  for (const ChatMessage& message : std::get<ChatPrompt>(prompt).messages) {
    bytes += static_cast<int64_t>(message.content.size());
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterConfig& config,
                                                      std::shared_ptr<const ServedModel> model,
                                                      base::Metrics& metrics) {
  RETURN_IF_ERROR(Validate(config));
  std::unique_ptr<Router> router(new Router(config, std::move(model), metrics));
  router->StartLanes();
  RETURN_IF_ERROR(router->StartServers());
  return router;
}

Router::Router(const RouterConfig& config, std::shared_ptr<const ServedModel> model,
               base::Metrics& metrics)
    : config_(config),
      model_(std::move(model)),
      started_(absl::Now()),
      probe_(metrics),
      registry_({.workers_max = config.attach_workers_max,
                 .suspect_after = config.worker_suspect_after,
                 .dead_after = config.worker_dead_after,
                 .seed = incarnation_.low},
                clock_),
      buffers_(config.answer_buffer_bytes_max),
      text_pool_({.threads = config.text_threads,
                  .tasks_max = config.requests_max,
                  .bytes_max = config.text_pool_bytes_max}),
      inference_service_(*this, buffers_),
      attach_service_(incarnation_, *this) {}

void Router::StartLanes() {
  for (uint32_t i = 0; i < config_.relay_threads; ++i) {
    auto lane = std::make_unique<Lane>(absl::StrCat("relay-", i));
    lane->tracker = std::make_unique<RequestTracker>(
        RequestTracker::Context{.model = *model_,
                                .registry = registry_,
                                .probe = probe_,
                                .lane = lane->work,
                                .queue_tokens = queue_tokens_,
                                .router_incarnation = incarnation_,
                                .limits = {.failures_max = config_.failures_max,
                                           .queue_tokens_max = config_.queue_tokens_max,
                                           .queue_wait_max = config_.queue_wait_max,
                                           .workers_expected = started_ + config_.worker_wait},
                                .on_end = [this] { RequestEnded(); },
                                .on_capacity = [this] { WakeLanes(); }});
    lanes_.push_back(std::move(lane));
  }
  watch_ = std::make_unique<WorkLane>("watch", [this] { Watch(); });
  watch_->Post([this] { Watch(); });
}

absl::Status Router::StartServers() {
  ASSIGN_OR_RETURN(worker_server_,
                   base::GrpcServer::Start({.host = config_.listen_host,
                                            .port = config_.worker_port,
                                            .services = {&attach_service_},
                                            .health_names = {"baton.v1.AttachService"},
                                            .message_bytes_max = config_.message_bytes_max}));
  ASSIGN_OR_RETURN(client_server_,
                   base::GrpcServer::Start({.host = config_.listen_host,
                                            .port = config_.port,
                                            .services = {&inference_service_},
                                            .health_names = {"baton.v1.InferenceService"},
                                            .message_bytes_max = config_.message_bytes_max}));
  worker_server_->SetServing(true);
  client_server_->SetServing(true);
  return absl::OkStatus();
}

Router::~Router() { Stop(); }

bool Router::Drain() {
  draining_ = true;
  client_server_->SetServing(false);
  worker_server_->SetServing(false);
  const absl::Time until = absl::Now() + config_.drain_timeout;
  base::MutexLock lock(mutex_);
  while (live_ > 0 && absl::Now() < until) idle_.WaitFor(mutex_, until - absl::Now());
  return live_ == 0;
}

void Router::Stop() {
  if (stopped_) return;
  stopped_ = true;
  draining_ = true;
  // First what makes requests, then the requests, then those who hear of their end, then the
  // threads they lived on.
  text_pool_.Stop();
  for (const auto& lane : lanes_) {
    lane->work.Post([tracker = lane->tracker.get()] {
      tracker->FailAll(absl::UnavailableError("the router is going down"));
    });
  }
  if (client_server_ != nullptr) client_server_->Stop(kStopGrace);
  attach_service_.Close();
  if (worker_server_ != nullptr) worker_server_->Stop(kStopGrace);
  if (watch_ != nullptr) watch_->Stop();
  calls_.CancelAndWait();
  for (const auto& lane : lanes_) lane->work.Stop();
}

// --- Requests ---

absl::Status Router::TakeOn(RequestSpec& spec) {
  if (draining_) return absl::UnavailableError("the router is draining");
  RETURN_IF_ERROR(Validate(spec, *model_, config_.prompt_bytes_max));
  if (!spec.sampling.seed.has_value()) spec.sampling.seed = base::Id128::Random().low;
  base::MutexLock lock(mutex_);
  if (live_ >= config_.requests_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(live_, " requests are here, as many as --requests_max allows"));
  }
  ++live_;
  return absl::OkStatus();
}

absl::Status Router::Submit(RequestSpec spec, std::shared_ptr<AnswerSink> sink) {
  absl::Status status = TakeOn(spec);
  if (status.ok()) {
    const int64_t bytes = BytesOf(spec.prompt);
    status =
        text_pool_.Submit(bytes, [this, spec = std::move(spec), sink = std::move(sink)]() mutable {
          Prepare(std::move(spec), std::move(sink));
        });
    if (!status.ok()) RequestEnded();
  }
  if (!status.ok()) NoteRefused(status);
  return status;
}

void Router::NoteRefused(const absl::Status& why) { probe_.CountOutcome(OutcomeOf(why)); }

// On a text thread.
void Router::Prepare(RequestSpec spec, std::shared_ptr<AnswerSink> sink) {
  absl::StatusOr<EncodedPrompt> encoded = absl::CancelledError("the client is gone");
  // At least one token is left for the answer.
  const uint32_t tokens_max = model_->context_tokens > 0 ? model_->context_tokens - 1 : kNoLimit;
  if (!sink->cancelled()) encoded = EncodePrompt(*model_, spec.prompt, absl::Now(), tokens_max);
  absl::Status status = encoded.status();
  if (status.ok() && encoded->tokens.empty()) {
    status = absl::InvalidArgumentError("the prompt has 0 tokens, must have at least 1");
  }
  // The workers' context may be smaller: the tracker checks again.
  if (status.ok() && model_->context_tokens > 0) {
    status = ResolveMaxTokens(encoded->tokens.size(), spec.stop_conditions.max_tokens,
                              model_->context_tokens)
                 .status();
  }
  if (!status.ok()) {
    probe_.CountOutcome(OutcomeOf(status));
    LOG(INFO) << "request ended" << base::LogField("request", spec.id)
              << base::LogField("client_request", spec.client_request_id)
              << base::LogField("outcome", NameOf(OutcomeOf(status)))
              << base::LogField("why", status.message());
    sink->Fail(status);
    return RequestEnded();
  }
  spec.prompt = TokenPrompt{};  // The text is not needed any more.
  Lane& lane = LaneOf(spec.id);
  PreparedRequest prepared{
      .spec = std::move(spec),
      .tokens = std::make_shared<const std::vector<uint32_t>>(std::move(encoded->tokens)),
      .sink = std::move(sink),
      .text_done = absl::Now()};
  lane.work.Post([&lane, prepared = std::move(prepared)]() mutable {
    lane.tracker->Start(std::move(prepared));
  });
}

void Router::RequestEnded() {
  base::MutexLock lock(mutex_);
  if (--live_ == 0) idle_.NotifyAll();
}

void Router::Cancel(const base::Id128& id, const absl::Status& why) {
  Lane& lane = LaneOf(id);
  lane.work.Post([&lane, id, why] { lane.tracker->Cancel(id, why); });
}

absl::Status Router::Encode(const std::string& model_name, Prompt prompt, Encoded done) {
  RETURN_IF_ERROR(ValidateModelName(model_name, *model_));
  RETURN_IF_ERROR(ValidatePrompt(prompt, *model_, config_.prompt_bytes_max));
  const int64_t bytes = BytesOf(prompt);
  return text_pool_.Submit(bytes,
                           [this, prompt = std::move(prompt), done = std::move(done)]() mutable {
                             done(EncodePrompt(*model_, prompt, absl::Now(), kNoLimit));
                           });
}

absl::Status Router::Decode(const std::string& model_name, std::vector<uint32_t> ids,
                            Decoded done) {
  RETURN_IF_ERROR(ValidateModelName(model_name, *model_));
  if (model_->tokenizer == nullptr) {
    return absl::FailedPreconditionError("the model has no tokenizer");
  }
  RETURN_IF_ERROR(ValidateTokenIds(ids, "token_ids", model_->vocabulary_size));
  const auto bytes = static_cast<int64_t>(ids.size() * sizeof(uint32_t));
  return text_pool_.Submit(bytes, [this, ids = std::move(ids), done = std::move(done)]() mutable {
    done(DecodeTokens(*model_, ids));
  });
}

ClusterStatus Router::Status() const {
  ClusterStatus status{.workers = registry_.List(), .uptime = absl::Now() - started_};
  status.requests_running = static_cast<uint32_t>(probe_.requests_running.Value());
  base::MutexLock lock(mutex_);
  status.requests_waiting =
      static_cast<uint32_t>(std::max<int64_t>(0, live_ - status.requests_running));
  return status;
}

// --- Workers ---

absl::Status Router::CheckModel(const WorkerHello& hello) const {
  if (!model_->digest.empty() && hello.model_digest != model_->digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker serves model \"", hello.model_name, "\" of digest ",
        absl::BytesToHexString(hello.model_digest).substr(0, 16), "…, this router \"", model_->name,
        "\" of digest ", absl::BytesToHexString(model_->digest).substr(0, 16), "…"));
  }
  if (hello.vocabulary_size != model_->vocabulary_size) {
    return absl::FailedPreconditionError(absl::StrCat("the worker's vocabulary has ",
                                                      hello.vocabulary_size, " tokens, must have ",
                                                      model_->vocabulary_size));
  }
  return absl::OkStatus();
}

absl::Status Router::OnAttach(const WorkerHello& hello,
                              std::shared_ptr<WorkerConnection> connection) {
  if (draining_) return absl::UnavailableError("the router is draining");
  RETURN_IF_ERROR(CheckModel(hello));
  auto worker = std::make_shared<Worker>();
  worker->hello = hello;
  worker->connection = std::move(connection);
  worker->calls = ConnectToWorker(hello.address, config_.message_bytes_max,
                                  config_.worker_call_timeout, calls_);
  RETURN_IF_ERROR(registry_.Attach(std::move(worker)));
  LOG(INFO) << "worker attached" << base::LogField("worker", hello.incarnation)
            << base::LogField("role", hello.role == WorkerRole::kPrefill ? "prefill" : "decode")
            << base::LogField("address", hello.address)
            << base::LogField("blocks", hello.blocks_total)
            << base::LogField("context_tokens", hello.context_tokens);
  return absl::OkStatus();
}

void Router::OnStepBatch(std::shared_ptr<const StepBatch> batch) {
  probe_.step_batches.Increment();
  std::vector<bool> concerned(lanes_.size(), lanes_.size() == 1);
  if (lanes_.size() > 1) {
    for (const TokenEvent& event : batch->events)
      concerned[event.key.id.low % lanes_.size()] = true;
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!concerned[i]) continue;
    lanes_[i]->work.Post(
        [tracker = lanes_[i]->tracker.get(), batch] { tracker->OnStepBatch(*batch); });
  }
}

void Router::OnLoadReport(const base::Id128& worker, const LoadReport& report) {
  registry_.Report(worker, report);
  WakeLanes();
}

void Router::OnDraining(const base::Id128& worker) {
  LOG(INFO) << "worker is draining" << base::LogField("worker", worker);
  registry_.SetDraining(worker);
}

void Router::OnDetach(const base::Id128& worker, const WorkerConnection& connection) {
  LoseWorker(worker, connection, "its stream ended");
}

void Router::LoseWorker(const base::Id128& id, const WorkerConnection& connection,
                        absl::string_view why) {
  const std::shared_ptr<const Worker> worker = registry_.Detach(id, connection);
  if (worker == nullptr) return;
  probe_.workers_lost.Increment();
  LOG(WARNING) << "worker detached" << base::LogField("worker", id)
               << base::LogField("address", worker->hello.address) << base::LogField("why", why);
  for (const auto& lane : lanes_) {
    lane->work.Post([tracker = lane->tracker.get(), worker] {
      tracker->OnWorkerLost(*worker);
      tracker->ServeQueue();  // What waited for this worker alone waits no longer.
    });
  }
}

Router::Lane& Router::LaneOf(const base::Id128& request) {
  return *lanes_[request.low % lanes_.size()];
}

void Router::WakeLanes() {
  for (const auto& lane : lanes_) {
    if (!lane->tracker->wants_capacity() || lane->woken.exchange(true)) continue;
    lane->work.Post([lane = lane.get()] {
      lane->woken = false;
      lane->tracker->ServeQueue();
    });
  }
}

void Router::Watch() {
  for (const std::shared_ptr<const Worker>& worker : registry_.FindDead()) {
    worker->connection->Close(absl::UnavailableError("no sign of life"));
    LoseWorker(worker->hello.incarnation, *worker->connection, "no sign of life");
  }
  int counts[kWorkerRoles][kWorkerStates] = {};
  for (const WorkerSnapshot& worker : registry_.List()) {
    ++counts[static_cast<int>(worker.hello.role)][static_cast<int>(worker.state)];
  }
  for (int role = 0; role < kWorkerRoles; ++role) {
    for (int state = 0; state < kWorkerStates; ++state) {
      probe_.workers[role][state]->Set(counts[role][state]);
    }
  }
  probe_.text_pool_tasks.Set(static_cast<double>(text_pool_.tasks()));
  probe_.text_pool_bytes.Set(static_cast<double>(text_pool_.bytes()));
  probe_.answer_buffer_bytes.Set(static_cast<double>(buffers_.bytes()));
  watch_->SetAlarm(absl::Now() + kWatchPeriod);
}

}  // namespace baton::router
