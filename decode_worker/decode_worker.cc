#include "decode_worker/decode_worker.h"

#include <utility>

#include "base/status_macros.h"

namespace baton::decode_worker {

absl::StatusOr<std::unique_ptr<DecodeWorker>> DecodeWorker::Start(
    const worker::WorkerConfig& config, const worker::WorkerModel& model, base::Metrics& metrics,
    kvstore::LoopbackRegistry* loopback) {
  ASSIGN_OR_RETURN(worker::WorkerParts parts, worker::WorkerParts::Make(config, model));
  std::unique_ptr<DecodeWorker> self(new DecodeWorker(config, model, metrics, std::move(parts)));
  self->receiver_ = std::make_unique<kvstore::LinkReceiver>(
      kvstore::LinkWorker{.pool = *self->parts_.pool,
                          .arena = *self->parts_.arena,
                          .compatibility = model.compatibility(),
                          .incarnation = self->parts_.incarnation,
                          .probe = self->handoff_probe_,
                          .loopback = loopback},
      kvstore::LinkReceiverOptions{.transports = worker::TransportsOf(config, loopback != nullptr)},
      self->engine_);
  self->engine_.Start(*self->receiver_, self->attach_);
  ASSIGN_OR_RETURN(
      self->server_,
      base::GrpcServer::Start(
          {.host = config.listen_host,
           .port = config.port,
           .services = {&self->service_, &self->receiver_->service()},
           .health_names = {"baton.v1.DecodeWorkerService", "baton.v1.LinkService"}}));
  self->address_ = self->server_->address();
  worker::WorkerHello hello = worker::HelloOf(config, self->parts_, model);
  hello.address =
      config.advertise_address.empty() ? self->address_ : config.advertise_address;
  self->server_->SetServing(true);
  self->attach_.Start(std::move(hello));
  return self;
}

DecodeWorker::DecodeWorker(const worker::WorkerConfig& config, const worker::WorkerModel& model,
                           base::Metrics& metrics, worker::WorkerParts parts)
    : parts_(std::move(parts)),
      probe_(metrics, worker::WorkerRole::kDecode),
      handoff_probe_(metrics, kvstore::HandoffProbe::Side::kSink),
      engine_(*model.model, *parts_.pool, parts_.arena->view(),
              {.runner = worker::RunnerConfigOf(config)}, probe_),
      service_(engine_, worker::LimitsOf(parts_, model)),
      attach_(worker::AttachOptionsOf(config), engine_, &probe_) {}

DecodeWorker::~DecodeWorker() { Drain(absl::ZeroDuration()); }

bool DecodeWorker::Drain(absl::Duration timeout) {
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
  if (receiver_ != nullptr) receiver_->Shutdown();
  if (server_ != nullptr) server_->Stop(absl::ZeroDuration());
  engine_.Stop();
  receiver_.reset();
  return finished;
}

}  // namespace baton::decode_worker
