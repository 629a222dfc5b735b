#include "worker/worker_process.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/termination.h"
#include "worker/loaded_model.h"
#include "worker/worker_flags.h"

namespace baton::worker {
namespace {

std::string KvTypeName(const std::optional<kernels::KvType>& type) {
  if (!type.has_value()) return "by model";
  switch (*type) {
    case kernels::KvType::kF32: return "f32";
    case kernels::KvType::kF16: return "f16";
    case kernels::KvType::kBf16: return "bf16";
  }
  return "unknown";
}

void LogSettings(const WorkerConfig& config) {
  using base::LogField;
  LOG(INFO) << "settings" << LogField("model", config.model_path)
            << LogField("served_model_name", config.served_model_name)
            << LogField("cpu", config.cpu_level) << LogField("threads", config.threads)
            << LogField("kv_dtype", KvTypeName(config.kv_type))
            << LogField("block_tokens", config.block_tokens)
            << LogField("context_tokens", config.context_tokens)
            << LogField("cache_folder", config.cache_folder)
            << LogField("chunk_tokens", config.chunk_tokens)
            << LogField("running_max", EffectiveRunningMax(config))
            << LogField("arena_bytes", config.arena_bytes)
            << LogField("queue_requests_max", config.queue_requests_max)
            << LogField("queue_tokens_max", config.queue_tokens_max)
            << LogField("listen_host", config.listen_host) << LogField("port", config.port)
            << LogField("advertise_address", config.advertise_address)
            << LogField("routers", absl::StrJoin(config.routers, ","))
            << LogField("metrics_port", config.metrics_port)
            << LogField("kv_transports", absl::StrJoin(config.kv_transports, ","))
            << LogField("nice", config.nice)
            << LogField("drain_timeout", absl::FormatDuration(config.drain_timeout));
}

absl::Status Run(const WorkerProgram& program) {
  ASSIGN_OR_RETURN(const WorkerConfig config, ConfigFromFlags(program.role));
  RETURN_IF_ERROR(PrepareProcess(program, config));
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, LoadedModel::Load(config));
  return ServeUntilTerminated(program, config, model->view());
}

}  // namespace

void ParseCommandLine(const WorkerProgram& program, int argc, char** argv) {
  base::BlockTerminationSignals();
  // Debian's Abseil aborts on a mere inversion of its locks' order; gRPC's own locks are not ours to order.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  absl::SetProgramUsageMessage(absl::StrCat(program.summary, "\nUsage: ", program.name,
                                            " --model=FILE.gguf --routers=HOST:PORT [flags]"));
  absl::FlagsUsageConfig usage;
  usage.version_string = [name = program.name] {
    return absl::StrCat(name, " ", BATON_VERSION, "\n");
  };
  // --help shows the flags of workers.
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::StrContains(file, "worker/worker_flags.cc") ||
           absl::StrContains(file, "tests/fakes/");
  };
  absl::SetFlagsUsageConfig(usage);
  absl::ParseCommandLine(argc, argv);
}

absl::Status PrepareProcess(const WorkerProgram& program, const WorkerConfig& config) {
  base::InitLogging(absl::StrCat(WorkerRoleName(program.role), "-worker"), config.log_level);
  LogSettings(config);
  if (config.nice != 0 && setpriority(PRIO_PROCESS, 0, config.nice) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot set nice to ", config.nice, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status ServeUntilTerminated(const WorkerProgram& program, const WorkerConfig& config,
                                  const WorkerModel& model) {
  base::Metrics metrics;
  RETURN_IF_ERROR(metrics.Serve(config.listen_host, config.metrics_port));
  ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker, program.start(config, model, metrics));
  LOG(INFO) << "ready" << base::LogField("service", worker->address())
            << base::LogField("incarnation", worker->incarnation());
  std::cout << program.name << " ready service=" << worker->address()
            << " metrics=" << config.listen_host << ':' << metrics.port() << std::endl;

  const int signal = base::WaitForTermination();
  base::RestoreTerminationSignals();
  LOG(INFO) << "draining" << base::LogField("signal", signal);
  const bool finished = worker->Drain(config.drain_timeout);
  LOG(INFO) << (finished ? "drained" : "drained, with requests cut off");
  return absl::OkStatus();
}

int WorkerMain(const WorkerProgram& program, int argc, char** argv) {
  ParseCommandLine(program, argc, argv);
  return ExitWith(program, Run(program));
}

int ExitWith(const WorkerProgram& program, const absl::Status& status) {
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "%s: %s\n", program.name.c_str(), std::string(status.message()).c_str());
  return EXIT_FAILURE;
}

}  // namespace baton::worker
