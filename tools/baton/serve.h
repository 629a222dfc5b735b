// `baton serve`: a whole cluster in one process, for a laptop. The one place where all roles are linked together.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "router/router_config.h"
#include "worker/worker_config.h"

namespace baton::tools {

struct ServeSettings {
  router::RouterConfig router;
  worker::WorkerConfig worker;  // Of each worker; role, routers and ports are set by RunServe().
  // False: one worker both prefills and decodes, mixing prompt chunks into its batch. True: a prefill worker and a decode
  // worker, each with a model and an arena of its own, with KV handed over in memory (transport loopback).
  bool split = false;
};

// Prints one line to stdout when it serves,
//
//   baton ready client=127.0.0.1:50051 metrics=127.0.0.1:9400
//
// and returns after SIGTERM or SIGINT, when running answers have ended or drain_timeout is over.
absl::Status RunServe(const ServeSettings& settings);

}  // namespace baton::tools
