#include "worker/worker_flags.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace {
const baton::worker::WorkerConfig& Defaults() {
  static const auto& defaults = *new baton::worker::WorkerConfig;
  return defaults;
}
}  // namespace

ABSL_FLAG(std::string, model, "",
          "GGUF file, or folder with config.json and *.safetensors, of a Llama-family model. "
          "Required.");
ABSL_FLAG(std::string, served_model_name, "",
          "Name that routers know the model by. Empty: the name in the model's metadata.");
ABSL_FLAG(std::string, cpu, Defaults().cpu_level,
          "Code that the CPU runs: auto, avx512, avx512-nobf16, avx2 or reference. A level this "
          "CPU lacks is refused.");
ABSL_FLAG(uint32_t, threads, Defaults().threads,
          "Threads of one step, in [0, 1024]. 0: one per core that the process may use.");
ABSL_FLAG(std::string, kv_dtype, "",
          "Type of KV: f32, f16 or bf16. Empty: f32 for F32 models, else bf16. Workers exchange "
          "KV only if theirs are equal.");
ABSL_FLAG(uint32_t, block_tokens, Defaults().block_tokens,
          "Tokens of a KV block: 8, 16, 32, 64 or 128. Equal on all workers.");
ABSL_FLAG(uint32_t, context_tokens, Defaults().context_tokens,
          "Prompt and output of a request together, at most. 0: the model's, but no more than "
          "8192.");
ABSL_FLAG(std::string, cache_folder, "",
          "Where packed weights are kept for the next start. Empty: baton in $XDG_CACHE_HOME or "
          "~/.cache; \"none\": not kept.");
ABSL_FLAG(uint32_t, chunk_tokens, Defaults().chunk_tokens,
          "Prompt tokens of one step, at most, in [16, 8192].");
ABSL_FLAG(uint32_t, running_max, Defaults().running_max,
          "Sequences that run at once, in [1, 1024]. 0: 64 for a prefill worker, 256 for a decode "
          "worker.");
ABSL_FLAG(uint64_t, arena_bytes, Defaults().arena_bytes,
          "Memory for KV. 0: a fifth of free memory, at most 4 GiB, at least one context.");
ABSL_FLAG(uint32_t, queue_requests_max, Defaults().queue_requests_max,
          "Prefill worker: requests that wait for their first token, at most, in [1, 65536].");
ABSL_FLAG(uint32_t, queue_tokens_max, Defaults().queue_tokens_max,
          "Prefill worker: prompt tokens of those requests, at most, in [1, 2147483647].");
ABSL_FLAG(std::string, listen_host, Defaults().listen_host,
          "Address that services and metrics listen on. There is no TLS yet: leave it on loopback "
          "unless the network is yours alone.");
ABSL_FLAG(uint16_t, port, Defaults().port, "Port of the services. 0: any.");
ABSL_FLAG(std::string, advertise_address, "",
          "host:port where routers and peers dial this worker. Empty: where it listens.");
ABSL_FLAG(std::vector<std::string>, routers, {"127.0.0.1:50050"},
          "host:port of each router's worker port, with commas between, 1 to 64.");
ABSL_FLAG(int32_t, metrics_port, -1,
          "Port of /metrics (HTTP). 0: any; -1: 9401 for a prefill worker, 9402 for a decode "
          "worker.");
ABSL_FLAG(std::vector<std::string>, kv_transports, Defaults().kv_transports,
          "How KV may travel between workers, best first: shm (one host), grpc.");
ABSL_FLAG(int32_t, nice, Defaults().nice,
          "Niceness of this process, in [0, 19]: a prefill worker that shares cores with a decode "
          "worker should give way.");
ABSL_FLAG(absl::Duration, drain_timeout, Defaults().drain_timeout,
          "On SIGTERM, how long requests may go on. A second signal ends the process at once.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error; logs go to stderr.");
#ifdef BATON_PLANTED_FAULTS
ABSL_FLAG(std::string, planted_fault, "",
          "Test builds only: a defect in every decode row, stale_block or wrong_position.");
#endif

namespace baton::worker {
namespace {

absl::StatusOr<base::LogLevel> ParseLogLevel(const std::string& name) {
  if (name == "debug") return base::LogLevel::DEBUG;
  if (name == "info") return base::LogLevel::INFO;
  if (name == "warning") return base::LogLevel::WARNING;
  if (name == "error") return base::LogLevel::ERROR;
  return absl::InvalidArgumentError(
      absl::StrCat("log_level is \"", name, "\", must be debug, info, warning or error"));
}

absl::StatusOr<uint16_t> ParseMetricsPort(int32_t port, WorkerRole role) {
  if (port == -1) return role == WorkerRole::kPrefill ? 9401 : 9402;
  if (port >= 0 && port <= 65535) return static_cast<uint16_t>(port);
  return absl::InvalidArgumentError(
      absl::StrCat("metrics_port is ", port, ", must be in [-1, 65535]"));
}

std::string CacheFolder(const std::string& flag) {
  if (flag == "none") return "";
  return flag.empty() ? DefaultCacheFolder() : flag;
}

}  // namespace

absl::StatusOr<WorkerConfig> ConfigFromFlags(WorkerRole role) {
  WorkerConfig config{.role = role,
                      .model_path = absl::GetFlag(FLAGS_model),
                      .served_model_name = absl::GetFlag(FLAGS_served_model_name),
                      .cpu_level = absl::GetFlag(FLAGS_cpu),
                      .threads = absl::GetFlag(FLAGS_threads),
                      .block_tokens = absl::GetFlag(FLAGS_block_tokens),
                      .context_tokens = absl::GetFlag(FLAGS_context_tokens),
                      .cache_folder = CacheFolder(absl::GetFlag(FLAGS_cache_folder)),
                      .chunk_tokens = absl::GetFlag(FLAGS_chunk_tokens),
                      .running_max = absl::GetFlag(FLAGS_running_max),
                      .arena_bytes = absl::GetFlag(FLAGS_arena_bytes),
                      .queue_requests_max = absl::GetFlag(FLAGS_queue_requests_max),
                      .queue_tokens_max = absl::GetFlag(FLAGS_queue_tokens_max),
                      .listen_host = absl::GetFlag(FLAGS_listen_host),
                      .port = absl::GetFlag(FLAGS_port),
                      .advertise_address = absl::GetFlag(FLAGS_advertise_address),
                      .routers = absl::GetFlag(FLAGS_routers),
                      .kv_transports = absl::GetFlag(FLAGS_kv_transports),
                      .nice = absl::GetFlag(FLAGS_nice),
                      .drain_timeout = absl::GetFlag(FLAGS_drain_timeout)};
  ASSIGN_OR_RETURN(config.log_level, ParseLogLevel(absl::GetFlag(FLAGS_log_level)));
  ASSIGN_OR_RETURN(config.kv_type, ParseKvType(absl::GetFlag(FLAGS_kv_dtype)));
  ASSIGN_OR_RETURN(config.metrics_port,
                   ParseMetricsPort(absl::GetFlag(FLAGS_metrics_port), role));
#ifdef BATON_PLANTED_FAULTS
  config.planted_fault = absl::GetFlag(FLAGS_planted_fault);
#endif
  RETURN_IF_ERROR(Validate(config));
  return config;
}

}  // namespace baton::worker
