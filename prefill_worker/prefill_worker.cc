#include "prefill_worker/prefill_worker.h"

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace baton::prefill_worker {
namespace {

PrefillEngineOptions EngineOptionsOf(const worker::WorkerConfig& config) {
  return {.runner = worker::RunnerConfigOf(config),
          .queue_max = {.requests = config.queue_requests_max,
                        .tokens = config.queue_tokens_max}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefillWorker>> PrefillWorker::Start(
    const worker::WorkerConfig& config, const worker::WorkerModel& model, base::Metrics& metrics,
    kvstore::LoopbackRegistry* loopback) {
  ASSIGN_OR_RETURN(worker::WorkerParts parts, worker::WorkerParts::Make(config, model));
  std::unique_ptr<PrefillWorker> self(
      new PrefillWorker(config, model, metrics, std::move(parts)));
  ASSIGN_OR_RETURN(
      self->sender_,
      kvstore::LinkSender::Create(
          {.pool = *self->parts_.pool,
           .arena = *self->parts_.arena,
           .compatibility = model.compatibility(),
           .incarnation = self->parts_.incarnation,
           .probe = self->handoff_probe_,
           .loopback = loopback},
          {.transports = worker::TransportsOf(config, loopback != nullptr)}, self->engine_));
  self->engine_.Start(*self->sender_, self->attach_);
  ASSIGN_OR_RETURN(
      self->server_,
      base::GrpcServer::Start({.host = config.listen_host,
                               .port = config.port,
                               .services = {&self->service_},
                               .health_names = {"baton.v1.PrefillWorkerService"}}));
  self->address_ = self->server_->address();
  worker::WorkerHello hello = worker::HelloOf(config, self->parts_, model);
  hello.address =
      config.advertise_address.empty() ? self->address_ : config.advertise_address;
  self->server_->SetServing(true);
  self->attach_.Start(std::move(hello));
  return self;
}

PrefillWorker::PrefillWorker(const worker::WorkerConfig& config, const worker::WorkerModel& model,
                             base::Metrics& metrics, worker::WorkerParts parts)
    : parts_(std::move(parts)),
      probe_(metrics, worker::WorkerRole::kPrefill),
      handoff_probe_(metrics, kvstore::HandoffProbe::Side::kSource),
      engine_(*model.model, *parts_.pool, parts_.arena->view(), EngineOptionsOf(config), probe_),
      service_(engine_, worker::LimitsOf(parts_, model)),
      attach_(worker::AttachOptionsOf(config), engine_, &probe_) {}

PrefillWorker::~PrefillWorker() { Drain(absl::ZeroDuration()); }

bool PrefillWorker::Drain(absl::Duration timeout) {
  if (std::exchange(drained_, true)) return true;
  if (server_ != nullptr) server_->SetServing(false);
  engine_.Drain();
  attach_.AnnounceDraining();
  const bool finished = engine_.WaitUntilIdle(timeout);
  if (!finished) {
    engine_.Abandon();
    engine_.WaitUntilIdle(worker::kCloseTimeout);
  }
  attach_.Stop(worker::kCloseTimeout);
  if (server_ != nullptr) server_->Stop(absl::ZeroDuration());
  engine_.Stop();
  sender_.reset();
  return finished;
}

}  // namespace baton::prefill_worker
