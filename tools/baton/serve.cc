#include "tools/baton/serve.h"

#include <iostream>
#include <memory>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "base/status_macros.h"
#include "base/termination.h"
#include "decode_worker/decode_worker.h"
#include "kvstore/transfer/loopback_transport.h"
#include "prefill_worker/prefill_worker.h"
#include "router/model_loader.h"
#include "router/router.h"
#include "worker/loaded_model.h"

namespace baton::tools {
namespace {

// The workers of this process, and what they stand on.
struct Workers {
  kvstore::LoopbackRegistry loopback;
  std::vector<std::unique_ptr<worker::LoadedModel>> models;
  std::vector<std::unique_ptr<worker::Worker>> running;
};

worker::WorkerConfig ConfigFor(const ServeSettings& settings, worker::WorkerRole role,
                               const router::Router& router) {
  worker::WorkerConfig config = settings.worker;
  config.role = role;
  config.port = 0;
  config.routers = {router.worker_address()};
  return config;
}

absl::Status StartDecode(const ServeSettings& settings, const router::Router& router,
                         base::Metrics& metrics, Workers& workers) {
  const worker::WorkerConfig config = ConfigFor(settings, worker::WorkerRole::kDecode, router);
  RETURN_IF_ERROR(Validate(config));
  ASSIGN_OR_RETURN(std::unique_ptr<worker::LoadedModel> model, worker::LoadedModel::Load(config));
  ASSIGN_OR_RETURN(std::unique_ptr<worker::Worker> decode,
                   decode_worker::DecodeWorker::Start(config, model->view(), metrics,
                                                      settings.split ? &workers.loopback : nullptr));
  workers.models.push_back(std::move(model));
  workers.running.push_back(std::move(decode));
  return absl::OkStatus();
}

absl::Status StartPrefill(const ServeSettings& settings, const router::Router& router,
                          base::Metrics& metrics, Workers& workers) {
  const worker::WorkerConfig config = ConfigFor(settings, worker::WorkerRole::kPrefill, router);
  RETURN_IF_ERROR(Validate(config));
  ASSIGN_OR_RETURN(std::unique_ptr<worker::LoadedModel> model, worker::LoadedModel::Load(config));
  ASSIGN_OR_RETURN(
      std::unique_ptr<worker::Worker> prefill,
      prefill_worker::PrefillWorker::Start(config, model->view(), metrics, &workers.loopback));
  workers.models.push_back(std::move(model));
  workers.running.push_back(std::move(prefill));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunServe(const ServeSettings& settings) {
  base::InitLogging("serve", settings.worker.log_level);
  RETURN_IF_ERROR(Validate(settings.router));
  ASSIGN_OR_RETURN(
      const std::shared_ptr<const router::ServedModel> served,
      router::LoadServedModel(settings.worker.model_path, settings.worker.served_model_name));
  base::Metrics metrics;
  RETURN_IF_ERROR(metrics.Serve(settings.router.listen_host, settings.router.metrics_port));
  Workers workers;
  ASSIGN_OR_RETURN(const std::unique_ptr<router::Router> router,
                   router::Router::Start(settings.router, served, metrics));
  RETURN_IF_ERROR(StartDecode(settings, *router, metrics, workers));
  if (settings.split) RETURN_IF_ERROR(StartPrefill(settings, *router, metrics, workers));
  std::cout << "baton ready client=" << router->client_address()
            << " metrics=" << settings.router.listen_host << ':' << metrics.port() << std::endl;

  LOG(INFO) << "draining" << base::LogField("signal", base::WaitForTermination());
  base::RestoreTerminationSignals();
  router->Drain();
  for (auto worker = workers.running.rbegin(); worker != workers.running.rend(); ++worker) {
    (*worker)->Drain(absl::ZeroDuration());
  }
  router->Stop();
  return absl::OkStatus();
}

}  // namespace baton::tools
