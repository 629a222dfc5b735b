// A worker of either role, running: what a process, or `baton serve`, starts and stops.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/id128.h"
#include "worker/router_link.h"

namespace baton::worker {

class Worker {
 public:
  // Drains for no time if Drain() was not called.
  virtual ~Worker() = default;

  virtual const std::string& address() const = 0;  // host:port where its services listen.
  virtual const base::Id128& incarnation() const = 0;

  // As told to routers, at this moment.
  virtual WorkerLoad load() const = 0;

  // Says NOT_SERVING and takes no new work, finishes what it has for at most `timeout`, ends the rest with UNAVAILABLE,
  // and closes all streams. Blocks. False: something had to be cut off. Idempotent.
  virtual bool Drain(absl::Duration timeout) = 0;
};

}  // namespace baton::worker
