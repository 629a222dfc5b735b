// A worker's flags. Linked into main programs only.
#pragma once

#include "absl/status/statusor.h"
#include "worker/worker_config.h"

namespace baton::worker {

// Reads the flags, after absl::ParseCommandLine(). INVALID_ARGUMENT names the flag, its value and what is legal.
absl::StatusOr<WorkerConfig> ConfigFromFlags(WorkerRole role);

}  // namespace baton::worker
