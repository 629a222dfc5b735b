#include "worker/worker_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace baton::worker {

absl::StatusOr<WorkerParts> WorkerParts::Make(const WorkerConfig& config,
                                              const WorkerModel& model) {
  const runner::RunnerConfig runner = RunnerConfigOf(config);
  RETURN_IF_ERROR(runner::Validate(runner));
  if (runner.running_max >= model.model->batch_rows_max()) {
    return absl::InvalidArgumentError(absl::StrCat("running_max is ", runner.running_max,
                                                   ", must be below the ",
                                                   model.model->batch_rows_max(),
                                                   " rows that the model computes at once"));
  }
  WorkerParts parts;
  ASSIGN_OR_RETURN(parts.context_tokens, ContextTokens(config, model.model->info()));
  ASSIGN_OR_RETURN(const ArenaSize size,
                   PlanArena(config, model.layout, parts.context_tokens, FreeMemoryBytes()));
  ASSIGN_OR_RETURN(parts.arena, kvstore::KvArena::Create(model.layout, size.blocks));
  parts.pool = std::make_unique<kvstore::KvBlockPool>(size.blocks, parts.arena->generations());
  LOG(INFO) << "kv arena" << base::LogField("bytes", size.bytes)
            << base::LogField("blocks", size.blocks)
            << base::LogField("block_tokens", model.layout.block_tokens)
            << base::LogField("context_tokens", parts.context_tokens);
  return parts;
}

runner::RunnerConfig RunnerConfigOf(const WorkerConfig& config) {
  runner::RunnerConfig runner{.chunk_tokens = config.chunk_tokens,
                              .running_max = EffectiveRunningMax(config)};
#ifdef BATON_PLANTED_FAULTS
  if (config.planted_fault == "stale_block") {
    runner.planted_fault = runner::PlantedFault::kStaleBlock;
  } else if (config.planted_fault == "wrong_position") {
    runner.planted_fault = runner::PlantedFault::kWrongPosition;
  } else {
    CHECK(config.planted_fault.empty()) << config.planted_fault;
  }
#endif
  return runner;
}

RequestLimits LimitsOf(const WorkerParts& parts, const WorkerModel& model) {
  return {.vocabulary_size = model.model->info().vocabulary_size,
          .context_tokens = parts.context_tokens};
}

WorkerHello HelloOf(const WorkerConfig& config, const WorkerParts& parts,
                    const WorkerModel& model) {
  const bool decode = config.role == WorkerRole::kDecode;
  return {.incarnation = parts.incarnation,
          .role = config.role,
          .model_name = model.name,
          .compatibility = model.compatibility(),
          .context_tokens = parts.context_tokens,
          .vocabulary_size = model.model->info().vocabulary_size,
          .blocks_total = parts.pool->counts().total,
          .running_sequences_max = decode ? EffectiveRunningMax(config) : 0,
          .chunk_tokens = config.chunk_tokens,
          .cpu_level = model.cpu_level,
          .local_prefill = decode};
}

AttachOptions AttachOptionsOf(const WorkerConfig& config) {
  AttachOptions options;
  options.routers = config.routers;
  return options;
}

std::vector<kvstore::TransportKind> TransportsOf(const WorkerConfig& config, bool loopback) {
  std::vector<kvstore::TransportKind> kinds;
  if (loopback) kinds.push_back(kvstore::TransportKind::kLoopback);
  for (const std::string& name : config.kv_transports) {
    kinds.push_back(name == "shm" ? kvstore::TransportKind::kShm : kvstore::TransportKind::kGrpc);
  }
  return kinds;
}

}  // namespace baton::worker
