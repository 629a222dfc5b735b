// The model a worker runs on, and how much KV it gets.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/kv_layout.h"
#include "kvstore/compatibility.h"
#include "model/model.h"
#include "worker/worker_config.h"

namespace baton::worker {

// A model as a worker borrows it: real ones come out of LoadedModel, others out of tests.
struct WorkerModel {
  model::Model* model = nullptr;
  kernels::KvLayout layout;
  std::string name;         // As served.
  std::string cpu_level;    // "avx512", for status pages.

  kvstore::Compatibility compatibility() const;
};

// Prompt and output together. INVALID_ARGUMENT when the flag asks for more than the model has.
absl::StatusOr<uint32_t> ContextTokens(const WorkerConfig& config, const model::ModelInfo& info);

struct ArenaSize {
  uint32_t blocks = 0;
  uint64_t bytes = 0;
};
// As config.arena_bytes says, or by default a fifth of `free_bytes`, at most 4 GiB; at least one full context either way.
// INVALID_ARGUMENT when arena_bytes holds less than one context; RESOURCE_EXHAUSTED when free memory does.
absl::StatusOr<ArenaSize> PlanArena(const WorkerConfig& config, const kernels::KvLayout& layout,
                                    uint32_t context_tokens, uint64_t free_bytes);

// Memory this process may still take: the machine's, or what its control group has left if that is less.
uint64_t FreeMemoryBytes();

}  // namespace baton::worker
