// How a worker introduces itself to a router.
#pragma once

#include <cstdint>
#include <string>

#include "base/id128.h"
#include "kvstore/compatibility.h"

namespace baton::worker {

enum class WorkerRole { kPrefill, kDecode };

// "prefill", "decode": as in metrics' labels and in names of binaries.
inline const char* WorkerRoleName(WorkerRole role) {
  return role == WorkerRole::kPrefill ? "prefill" : "decode";
}

struct WorkerHello {
  base::Id128 incarnation;      // Random for each start.
  WorkerRole role = WorkerRole::kPrefill;
  std::string address;          // host:port of its services.
  std::string model_name;
  kvstore::Compatibility compatibility;
  uint32_t context_tokens = 0;
  uint32_t vocabulary_size = 0;
  uint32_t blocks_total = 0;
  uint32_t running_sequences_max = 0;  // 0 for a prefill worker.
  uint32_t chunk_tokens = 0;
  std::string cpu_level;
  bool local_prefill = false;
};

}  // namespace baton::worker
