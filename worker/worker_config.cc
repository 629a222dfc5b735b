#include "worker/worker_config.h"

#include <cstdlib>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cpu_level.h"
#include "worker/attach_client.h"

namespace baton::worker {
namespace {

template <typename T>
absl::Status CheckRange(absl::string_view field, T value, T low, T high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be in [", low, ", ", high, "]"));
}

absl::Status CheckAddress(absl::string_view field, absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != absl::string_view::npos && colon > 0 &&
      absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 && port <= 65535) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", address, "\", must be host:port with a port in [1, 65535]"));
}

absl::Status CheckNetwork(const WorkerConfig& config) {
  if (config.listen_host.empty()) {
    return absl::InvalidArgumentError("listen_host is empty, must be an address of this machine");
  }
  const bool any = config.listen_host == "0.0.0.0" || config.listen_host == "[::]" ||
                   config.listen_host == "::";
  if (config.advertise_address.empty() && any) {
    return absl::InvalidArgumentError(
        absl::StrCat("advertise_address is empty, must be set when listen_host is ",
                     config.listen_host, ": routers and peers cannot dial that"));
  }
  if (!config.advertise_address.empty()) {
    RETURN_IF_ERROR(CheckAddress("advertise_address", config.advertise_address));
  }
  if (config.routers.empty() || config.routers.size() > AttachOptions::kRoutersMax) {
    return absl::InvalidArgumentError(absl::StrCat("routers has ", config.routers.size(),
                                                   " addresses, must have 1 to ",
                                                   AttachOptions::kRoutersMax));
  }
  for (const std::string& router : config.routers) {
    RETURN_IF_ERROR(CheckAddress("routers", router));
  }
  for (const std::string& transport : config.kv_transports) {
    if (transport == "shm" || transport == "grpc") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("kv_transports has \"", transport, "\", must be of shm and grpc"));
  }
  if (config.kv_transports.empty()) {
    return absl::InvalidArgumentError("kv_transports is empty, must name shm, grpc or both");
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const WorkerConfig& config) {
  if (config.model_path.empty()) {
    return absl::InvalidArgumentError(
        "model is required: a .gguf file, or a folder with config.json and *.safetensors");
  }
  RETURN_IF_ERROR(kernels::ParseCpuLevel(config.cpu_level).status());
  RETURN_IF_ERROR(CheckRange<uint32_t>("threads", config.threads, 0, 1024));
  const uint32_t block = config.block_tokens;
  if (block < 8 || block > 128 || (block & (block - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_tokens is ", block, ", must be 8, 16, 32, 64 or 128"));
  }
  if (config.context_tokens == 0) return absl::OkStatus();
  return CheckRange<uint32_t>("context_tokens", config.context_tokens, 2, kContextTokensMax);
}

}  // namespace

absl::Status Validate(const WorkerConfig& config) {
  RETURN_IF_ERROR(CheckModel(config));
  RETURN_IF_ERROR(CheckNetwork(config));
  RETURN_IF_ERROR(CheckRange<uint32_t>("chunk_tokens", config.chunk_tokens, 16, 8192));
  RETURN_IF_ERROR(CheckRange<uint32_t>("running_max", EffectiveRunningMax(config), 1, 1024));
  RETURN_IF_ERROR(
      CheckRange<uint32_t>("queue_requests_max", config.queue_requests_max, 1, 65536));
  RETURN_IF_ERROR(
      CheckRange<uint32_t>("queue_tokens_max", config.queue_tokens_max, 1, (1u << 31) - 1));
  RETURN_IF_ERROR(CheckRange("nice", config.nice, 0, 19));
  if (config.drain_timeout < absl::ZeroDuration() || config.drain_timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "drain_timeout is ", absl::FormatDuration(config.drain_timeout), ", must be in [0, 24h]"));
  }
  return absl::OkStatus();
}

uint32_t EffectiveRunningMax(const WorkerConfig& config) {
  if (config.running_max != 0) return config.running_max;
  return config.role == WorkerRole::kPrefill ? 64 : 256;
}

absl::StatusOr<std::optional<kernels::KvType>> ParseKvType(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "f32") return kernels::KvType::kF32;
  if (name == "f16") return kernels::KvType::kF16;
  if (name == "bf16") return kernels::KvType::kBf16;
  return absl::InvalidArgumentError(
      absl::StrCat("kv_dtype is \"", name, "\", must be f32, f16 or bf16"));
}

std::string DefaultCacheFolder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return absl::StrCat(cache, "/baton");
  }
  const char* const home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : absl::StrCat(home, "/.cache/baton");
}

}  // namespace baton::worker
