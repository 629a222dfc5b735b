#include "worker/worker_model.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kvstore/kv_block_pool.h"

namespace baton::worker {
namespace {

constexpr uint64_t kArenaBytesDefaultMax = uint64_t{4} << 30;
constexpr uint64_t kDefaultShareOfFree = 5;  // One part in so many.

// The number behind "name:" in a file of lines like /proc/meminfo, in KiB.
std::optional<uint64_t> MeminfoKib(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  uint64_t value = 0;
  while (file >> word) {
    if (word != name + ":") continue;
    if (file >> value) return value;
  }
  return std::nullopt;
}

// A file that holds one number; "max" and absent files say nothing.
std::optional<uint64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value = 0;
  if (file >> text && absl::SimpleAtoi(text, &value)) return value;
  return std::nullopt;
}

}  // namespace

kvstore::Compatibility WorkerModel::compatibility() const {
  return {.model_digest = model->info().digest,
          .numerics_class = model->numerics_class(),
          .layout = layout};
}

absl::StatusOr<uint32_t> ContextTokens(const WorkerConfig& config, const model::ModelInfo& info) {
  if (config.context_tokens == 0) return std::min(info.context_tokens, kContextTokensDefault);
  if (config.context_tokens <= info.context_tokens) return config.context_tokens;
  return absl::InvalidArgumentError(absl::StrCat("context_tokens is ", config.context_tokens,
                                                 ", must be at most the model's ",
                                                 info.context_tokens));
}

absl::StatusOr<ArenaSize> PlanArena(const WorkerConfig& config, const kernels::KvLayout& layout,
                                    uint32_t context_tokens, uint64_t free_bytes) {
  const uint64_t context_blocks =
      (uint64_t{context_tokens} + layout.block_tokens - 1) / layout.block_tokens;
  const uint64_t least = context_blocks * layout.block_bytes();
  if (config.arena_bytes != 0 && config.arena_bytes < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("arena_bytes is ", config.arena_bytes, ", must be at least ", least,
                     ": one context of ", context_tokens, " tokens"));
  }
  if (least > free_bytes && config.arena_bytes == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("one context of ", context_tokens, " tokens takes ", least,
                     " bytes of KV, but only ", free_bytes,
                     " bytes of memory are free; lower context_tokens"));
  }
  const uint64_t share = std::min(free_bytes / kDefaultShareOfFree, kArenaBytesDefaultMax);
  const uint64_t bytes = config.arena_bytes != 0 ? config.arena_bytes : std::max(share, least);
  const uint64_t blocks =
      std::min<uint64_t>(bytes / layout.block_bytes(), kvstore::KvBlockPool::kBlockCountMax);
  return ArenaSize{static_cast<uint32_t>(blocks), blocks * layout.block_bytes()};
}

uint64_t FreeMemoryBytes() {
  uint64_t free = MeminfoKib("MemAvailable").value_or(0) * 1024;
  const auto limit = NumberIn("/sys/fs/cgroup/memory.max");
  const auto used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit.has_value() && used.has_value()) free = std::min(free, *limit - std::min(*limit, *used));
  return free;
}

}  // namespace baton::worker
