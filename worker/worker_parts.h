// What a worker of either role is composed of below its engine: arena and pool, names and limits.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/id128.h"
#include "kvstore/kv_arena.h"
#include "kvstore/kv_block_pool.h"
#include "kvstore/transfer/link_hello.h"
#include "runner/runner.h"
#include "worker/attach_client.h"
#include "worker/engine_request.h"
#include "worker/worker_config.h"
#include "worker/worker_hello.h"
#include "worker/worker_model.h"

namespace baton::worker {

// How long a worker waits for its streams to end in good order, and for hand-offs that it gave up.
inline constexpr absl::Duration kCloseTimeout = absl::Seconds(2);

struct WorkerParts {
  base::Id128 incarnation = base::Id128::Random();
  uint32_t context_tokens = 0;
  std::unique_ptr<kvstore::KvArena> arena;
  std::unique_ptr<kvstore::KvBlockPool> pool;

  // Logs what was decided. Errors as of ContextTokens() and PlanArena(); INVALID_ARGUMENT when the model computes too few
  // rows at once for the configuration.
  static absl::StatusOr<WorkerParts> Make(const WorkerConfig& config, const WorkerModel& model);
};

runner::RunnerConfig RunnerConfigOf(const WorkerConfig& config);
RequestLimits LimitsOf(const WorkerParts& parts, const WorkerModel& model);
// Without the address, which is known once the server listens.
WorkerHello HelloOf(const WorkerConfig& config, const WorkerParts& parts, const WorkerModel& model);
AttachOptions AttachOptionsOf(const WorkerConfig& config);
// Best first; loopback before all if this process has another worker.
std::vector<kvstore::TransportKind> TransportsOf(const WorkerConfig& config, bool loopback);

}  // namespace baton::worker
