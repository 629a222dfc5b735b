#include "router/router_config.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::router {
namespace {

absl::Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be in [", low, ", ", high, "]"));
}

absl::Status CheckAbove(const char* field, absl::Duration value, absl::Duration low) {
  if (value > low) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", absl::FormatDuration(value),
                                                 ", must be above ", absl::FormatDuration(low)));
}

absl::Status CheckNotNegative(const char* field, absl::Duration value) {
  if (value >= absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", absl::FormatDuration(value), ", must be >= 0"));
}

constexpr int64_t kBytesMax = int64_t{1} << 40;

}  // namespace

absl::Status Validate(const RouterConfig& config) {
  if (config.listen_host.empty()) return absl::InvalidArgumentError("listen_host is empty");
  RETURN_IF_ERROR(CheckRange("text_threads", config.text_threads, 1, 64));
  RETURN_IF_ERROR(CheckRange("relay_threads", config.relay_threads, 1, 64));
  RETURN_IF_ERROR(CheckRange("message_bytes_max", config.message_bytes_max, 64 << 10, 1 << 30));
  RETURN_IF_ERROR(
      CheckRange("prompt_bytes_max", config.prompt_bytes_max, 1, config.message_bytes_max));
  RETURN_IF_ERROR(CheckRange("text_pool_bytes_max", config.text_pool_bytes_max,
                             config.prompt_bytes_max, kBytesMax));
  RETURN_IF_ERROR(CheckRange("requests_max", config.requests_max, 1, 65536));
  RETURN_IF_ERROR(CheckRange("queue_tokens_max", config.queue_tokens_max, 1, kBytesMax));
  RETURN_IF_ERROR(CheckAbove("queue_wait_max", config.queue_wait_max, absl::ZeroDuration()));
  RETURN_IF_ERROR(
      CheckRange("answer_buffer_bytes_max", config.answer_buffer_bytes_max, 1 << 20, kBytesMax));
  RETURN_IF_ERROR(CheckRange("failures_max", config.failures_max, 1, 16));
  RETURN_IF_ERROR(CheckRange("attach_workers_max", config.attach_workers_max, 1, 4096));
  RETURN_IF_ERROR(CheckNotNegative("worker_wait", config.worker_wait));
  RETURN_IF_ERROR(
      CheckAbove("worker_suspect_after", config.worker_suspect_after, absl::ZeroDuration()));
  RETURN_IF_ERROR(
      CheckAbove("worker_dead_after", config.worker_dead_after, config.worker_suspect_after));
  RETURN_IF_ERROR(
      CheckAbove("worker_call_timeout", config.worker_call_timeout, absl::ZeroDuration()));
  return CheckNotNegative("drain_timeout", config.drain_timeout);
}

std::vector<std::pair<std::string, std::string>> Describe(const RouterConfig& config) {
  const auto duration = [](absl::Duration value) { return absl::FormatDuration(value); };
  return {{"listen_host", config.listen_host},
          {"port", absl::StrCat(config.port)},
          {"worker_port", absl::StrCat(config.worker_port)},
          {"metrics_port", absl::StrCat(config.metrics_port)},
          {"text_threads", absl::StrCat(config.text_threads)},
          {"relay_threads", absl::StrCat(config.relay_threads)},
          {"prompt_bytes_max", absl::StrCat(config.prompt_bytes_max)},
          {"message_bytes_max", absl::StrCat(config.message_bytes_max)},
          {"text_pool_bytes_max", absl::StrCat(config.text_pool_bytes_max)},
          {"requests_max", absl::StrCat(config.requests_max)},
          {"queue_tokens_max", absl::StrCat(config.queue_tokens_max)},
          {"queue_wait_max", duration(config.queue_wait_max)},
          {"answer_buffer_bytes_max", absl::StrCat(config.answer_buffer_bytes_max)},
          {"failures_max", absl::StrCat(config.failures_max)},
          {"attach_workers_max", absl::StrCat(config.attach_workers_max)},
          {"worker_wait", duration(config.worker_wait)},
          {"worker_suspect_after", duration(config.worker_suspect_after)},
          {"worker_dead_after", duration(config.worker_dead_after)},
          {"worker_call_timeout", duration(config.worker_call_timeout)},
          {"drain_timeout", duration(config.drain_timeout)}};
}

}  // namespace baton::router
