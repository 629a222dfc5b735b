// What an operator may set on a worker. Flags become this struct in worker_flags.h; everything below gets the few fields
// it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "kernels/kv_layout.h"
#include "worker/worker_hello.h"

namespace baton::worker {

// Legal ranges that several places name.
inline constexpr uint32_t kContextTokensDefault = 8192;
inline constexpr uint32_t kContextTokensMax = 1 << 20;

struct WorkerConfig {
  WorkerRole role = WorkerRole::kPrefill;

  // The model.
  std::string model_path;                  // A .gguf file or a folder with config.json. Required.
  std::string served_model_name;           // Empty: the name in the file.
  std::string cpu_level = "auto";          // See kernels::ParseCpuLevel().
  uint32_t threads = 0;                    // [0, 1024]; 0: one per core.
  std::optional<kernels::KvType> kv_type;  // Absent: f32 for F32 models, else bf16.
  uint32_t block_tokens = 16;              // 8, 16, 32, 64 or 128.
  uint32_t context_tokens = 0;             // 0: the model's, at most kContextTokensDefault.
  std::string cache_folder;                // Of packed weights; empty: not kept.

  // The engine.
  uint32_t chunk_tokens = 512;             // [16, 8192]
  uint32_t running_max = 0;                // [1, 1024]; 0: 64 for a prefill worker, 256 for decode.
  uint64_t arena_bytes = 0;                // 0: a fifth of free memory, at most 4 GiB.
  uint32_t queue_requests_max = 1024;      // [1, 65536]; prefill: requests here, waiting or computed.
  uint32_t queue_tokens_max = 1 << 18;     // [1, 2^31); prefill: prompt tokens of those requests.

  // The network.
  std::string listen_host = "127.0.0.1";
  uint16_t port = 0;                       // 0: any.
  std::string advertise_address;           // host:port; empty: listen_host and the port.
  std::vector<std::string> routers;        // host:port of their worker ports; at most 64.
  uint16_t metrics_port = 0;               // 0: any.
  std::vector<std::string> kv_transports = {"shm", "grpc"};  // Best first.

  // The process.
  int nice = 0;                            // [0, 19]
  absl::Duration drain_timeout = absl::Seconds(30);  // [0, 1 day]
  base::LogLevel log_level = base::LogLevel::INFO;

#ifdef BATON_PLANTED_FAULTS
  std::string planted_fault;               // Empty, stale_block or wrong_position: see runner.h.
#endif
};

// INVALID_ARGUMENT, naming the field, its value and the legal range.
absl::Status Validate(const WorkerConfig& config);

// "" gives nullopt. INVALID_ARGUMENT lists the legal names.
absl::StatusOr<std::optional<kernels::KvType>> ParseKvType(const std::string& name);

// $XDG_CACHE_HOME/baton, else $HOME/.cache/baton; empty if neither is set. For main programs.
std::string DefaultCacheFolder();

// With the defaults that depend on the role filled in.
uint32_t EffectiveRunningMax(const WorkerConfig& config);

}  // namespace baton::worker
