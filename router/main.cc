// baton-router: flags, the model's text side, the router, and the order it starts and stops in.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status_macros.h"
#include "base/termination.h"
#include "google/protobuf/stubs/logging.h"
#include "router/model_loader.h"
#include "router/router.h"
#include "router/router_config.h"
#include "router/served_model.h"

namespace {
const baton::router::RouterConfig& Defaults() {
  static const auto& defaults = *new baton::router::RouterConfig;
  return defaults;
}
}  // namespace

ABSL_FLAG(std::string, model, "",
          "GGUF file (or safetensors folder) whose tokenizer, chat template and name are served. "
          "Required.");
ABSL_FLAG(std::string, served_model_name, "",
          "Name that clients ask for. Empty: the name in the model's metadata.");
ABSL_FLAG(std::string, listen_host, Defaults().listen_host,
          "Address that all three ports listen on. There is no TLS yet: leave it on loopback.");
ABSL_FLAG(uint16_t, port, Defaults().port, "Port for clients (gRPC). 0: any.");
ABSL_FLAG(uint16_t, worker_port, Defaults().worker_port, "Port that workers dial. 0: any.");
ABSL_FLAG(uint16_t, metrics_port, Defaults().metrics_port, "Port of /metrics (HTTP). 0: any.");
ABSL_FLAG(uint32_t, text_threads, Defaults().text_threads,
          "Threads that render templates and tokenise prompts, in [1, 64].");
ABSL_FLAG(uint32_t, relay_threads, Defaults().relay_threads,
          "Threads that turn tokens into the clients' text, in [1, 64].");
ABSL_FLAG(int64_t, prompt_bytes_max, Defaults().prompt_bytes_max,
          "Bytes of one prompt, at most; longer ones are INVALID_ARGUMENT.");
ABSL_FLAG(int64_t, message_bytes_max, Defaults().message_bytes_max,
          "Bytes of one gRPC message, at most; longer ones are RESOURCE_EXHAUSTED.");
ABSL_FLAG(int64_t, text_pool_bytes_max, Defaults().text_pool_bytes_max,
          "Bytes of prompts that wait for a text thread, at most.");
ABSL_FLAG(uint32_t, requests_max, Defaults().requests_max,
          "Requests at once, waiting ones included, in [1, 65536].");
ABSL_FLAG(int64_t, queue_tokens_max, Defaults().queue_tokens_max,
          "Prompt tokens that wait for a worker with room, at most.");
ABSL_FLAG(absl::Duration, queue_wait_max, Defaults().queue_wait_max,
          "How long a request waits for a worker with room, at most.");
ABSL_FLAG(int64_t, answer_buffer_bytes_max, Defaults().answer_buffer_bytes_max,
          "Bytes of answers that clients have not read, at most; beyond it the slowest client is "
          "cut off.");
ABSL_FLAG(uint32_t, failures_max, Defaults().failures_max,
          "Failed attempts of one request before it ends with UNAVAILABLE, in [1, 16].");
ABSL_FLAG(uint32_t, attach_workers_max, Defaults().attach_workers_max,
          "Workers attached at once, at most, in [1, 4096].");
ABSL_FLAG(absl::Duration, worker_wait, Defaults().worker_wait,
          "From the start, how long requests wait for the first workers to attach.");
ABSL_FLAG(absl::Duration, worker_suspect_after, Defaults().worker_suspect_after,
          "A worker that makes no progress for so long (and half a second) gets no new work.");
ABSL_FLAG(absl::Duration, worker_dead_after, Defaults().worker_dead_after,
          "A worker that makes no progress for so long counts as gone.");
ABSL_FLAG(absl::Duration, worker_call_timeout, Defaults().worker_call_timeout,
          "How long a worker has to answer Prefill or Admit.");
ABSL_FLAG(
    absl::Duration, drain_timeout, Defaults().drain_timeout,
    "On SIGTERM, how long running answers may go on. A second signal ends the process at once.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error; logs go to stderr.");

namespace baton::router {
namespace {

RouterConfig ConfigFromFlags() {
  return {.listen_host = absl::GetFlag(FLAGS_listen_host),
          .port = absl::GetFlag(FLAGS_port),
          .worker_port = absl::GetFlag(FLAGS_worker_port),
          .metrics_port = absl::GetFlag(FLAGS_metrics_port),
          .text_threads = absl::GetFlag(FLAGS_text_threads),
          .relay_threads = absl::GetFlag(FLAGS_relay_threads),
          .prompt_bytes_max = absl::GetFlag(FLAGS_prompt_bytes_max),
          .message_bytes_max = absl::GetFlag(FLAGS_message_bytes_max),
          .text_pool_bytes_max = absl::GetFlag(FLAGS_text_pool_bytes_max),
          .requests_max = absl::GetFlag(FLAGS_requests_max),
          .queue_tokens_max = absl::GetFlag(FLAGS_queue_tokens_max),
          .queue_wait_max = absl::GetFlag(FLAGS_queue_wait_max),
          .answer_buffer_bytes_max = absl::GetFlag(FLAGS_answer_buffer_bytes_max),
          .failures_max = absl::GetFlag(FLAGS_failures_max),
          .attach_workers_max = absl::GetFlag(FLAGS_attach_workers_max),
          .worker_wait = absl::GetFlag(FLAGS_worker_wait),
          .worker_suspect_after = absl::GetFlag(FLAGS_worker_suspect_after),
          .worker_dead_after = absl::GetFlag(FLAGS_worker_dead_after),
          .worker_call_timeout = absl::GetFlag(FLAGS_worker_call_timeout),
          .drain_timeout = absl::GetFlag(FLAGS_drain_timeout)};
}

absl::StatusOr<base::LogLevel> ParseLogLevel(const std::string& name) {
  if (name == "debug") return base::LogLevel::DEBUG;
  if (name == "info") return base::LogLevel::INFO;
  if (name == "warning") return base::LogLevel::WARNING;
  if (name == "error") return base::LogLevel::ERROR;
  return absl::InvalidArgumentError(
      absl::StrCat("log_level is \"", name, "\", must be debug, info, warning or error"));
}

void LogSettings(const RouterConfig& config, const ServedModel& model) {
  for (const auto& [name, value] : Describe(config)) {
    LOG(INFO) << "setting" << base::LogField(name, value);
  }
  LOG(INFO) << "model" << base::LogField("name", model.name)
            << base::LogField("architecture", model.architecture)
            << base::LogField("vocabulary", model.vocabulary_size)
            << base::LogField("context_tokens", model.context_tokens)
            << base::LogField("tokenizer", model.tokenizer != nullptr)
            << base::LogField("chat_template", model.chat_template != nullptr);
}

// One line for scripts to wait for and to read the ports from.
void AnnounceReady(const Router& router, const RouterConfig& config, const base::Metrics& metrics) {
  std::cout << "baton-router ready client=" << router.client_address()
            << " workers=" << router.worker_address() << " metrics=" << config.listen_host << ':'
            << metrics.port() << std::endl;
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const base::LogLevel level, ParseLogLevel(absl::GetFlag(FLAGS_log_level)));
  base::InitLogging("router", level);
  const RouterConfig config = ConfigFromFlags();
  RETURN_IF_ERROR(Validate(config));
  const std::string model_path = absl::GetFlag(FLAGS_model);
  if (model_path.empty())
    return absl::InvalidArgumentError("--model is empty, must name a model file");
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model,
                   LoadServedModel(model_path, absl::GetFlag(FLAGS_served_model_name)));
  LogSettings(config, *model);

  base::Metrics metrics;
  RETURN_IF_ERROR(metrics.Serve(config.listen_host, config.metrics_port));
  ASSIGN_OR_RETURN(const std::unique_ptr<Router> router, Router::Start(config, model, metrics));
  AnnounceReady(*router, config, metrics);

  const int signal = base::WaitForTermination();
  base::RestoreTerminationSignals();
  LOG(INFO) << "draining" << base::LogField("signal", signal);
  const bool drained = router->Drain();
  LOG(INFO) << (drained ? "drained" : "drain timeout: ending what is left");
  router->Stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::router

int main(int argc, char** argv) {
  baton::base::BlockTerminationSignals();
  // Debian's Abseil aborts on a mere inversion of its locks' order; gRPC's own locks are not ours
  // to order.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // A request that cannot be parsed is answered with the reason; protobuf need not log it as well.
  google::protobuf::SetLogHandler(nullptr);
  absl::SetProgramUsageMessage(
      "Baton's router: takes requests from clients, places them on workers, streams the answers.\n"
      "Usage: baton-router --model=FILE.gguf [flags]");
  absl::FlagsUsageConfig usage;
  usage.version_string = [] { return std::string("baton-router " BATON_VERSION "\n"); };
  // --help shows this program's own flags.
  usage.contains_help_flags = [](absl::string_view file) {
    return file.find("router/main.cc") != absl::string_view::npos;
  };
  absl::SetFlagsUsageConfig(usage);
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::router::Run();
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "baton-router: %s\n", std::string(status.message()).c_str());
  return EXIT_FAILURE;
}
