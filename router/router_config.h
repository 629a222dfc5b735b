// What an operator may set on a router. Flags are read in main.cc only; everything below it is
// handed this struct.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::router {

struct RouterConfig {
  // Where it listens. Port 0: any that is free.
  std::string listen_host = "127.0.0.1";
  uint16_t port = 50051;         // Clients.
  uint16_t worker_port = 50050;  // Workers dial it.
  uint16_t metrics_port = 9400;  // Prometheus.

  // Text.
  uint32_t text_threads = 2;   // Templates and tokenizer; [1, 64].
  uint32_t relay_threads = 1;  // Token streams; [1, 64]. One serves some 100,000 tokens a second.
  int64_t prompt_bytes_max = 4 << 20;    // Text of one prompt; [1, message_bytes_max].
  int64_t message_bytes_max = 16 << 20;  // One gRPC message; [64 KiB, 1 GiB].
  int64_t text_pool_bytes_max = 256
                                << 20;  // Text that waits for a text thread; >= prompt_bytes_max.

  // Requests.
  uint32_t requests_max = 4096;                       // At once; [1, 65536].
  int64_t queue_tokens_max = 1 << 20;                 // Prompt tokens that wait for a worker; >= 1.
  absl::Duration queue_wait_max = absl::Seconds(60);  // Of one request; > 0.
  int64_t answer_buffer_bytes_max = 256 << 20;  // Answers that clients have not read; >= 1 MiB.
  uint32_t failures_max = 3;                    // Failed attempts of one request; [1, 16].

  // Workers.
  uint32_t attach_workers_max = 256;              // [1, 4096]
  absl::Duration worker_wait = absl::Seconds(5);  // For the first ones, from the start; >= 0.
  absl::Duration worker_suspect_after = absl::Seconds(1);  // > 0
  absl::Duration worker_dead_after = absl::Seconds(3);     // > worker_suspect_after
  absl::Duration worker_call_timeout = absl::Seconds(2);   // Of Prefill and Admit; > 0.

  absl::Duration drain_timeout = absl::Seconds(30);  // For running answers at the end; >= 0.
};

// INVALID_ARGUMENT, naming the field, its value and the legal range.
absl::Status Validate(const RouterConfig& config);

// Every setting by name, for the log.
std::vector<std::pair<std::string, std::string>> Describe(const RouterConfig& config);

}  // namespace baton::router
