// Keeps one Attach stream to every router: step events, load and drain go up, cancels come down.
//
//              dial                 welcome                  broken, too slow, Stop()
//   (away) ───────────► greeting ───────────► attached ───────────────────────────────► (away)
//      ▲                   │ refused, no welcome in time                                  │
//      └───────────────────┴───── after a pause that doubles up to retry_max ◀────────────┘
//
// The step thread calls Publish(), which encodes into the router's pending batch and never waits: while a write is in
// flight batches gather, and at pending_bytes_max the router counts as gone and its stream is closed. When a stream ends
// the engine is told to drop what it does for that router: nobody could hear of it.
//
// Owned by the worker. One thread of its own dials and reports load; gRPC's threads bring cancels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/id128.h"
#include "base/mutex.h"
#include "worker/router_link.h"
#include "worker/worker_hello.h"
#include "worker/worker_probe.h"

namespace baton::worker {

struct AttachOptions {
  static constexpr size_t kRoutersMax = 64;

  std::vector<std::string> routers;  // host:port of their worker ports; at most kRoutersMax.
  absl::Duration report_interval = absl::Milliseconds(100);  // While anything changes.
  absl::Duration idle_report_interval = absl::Seconds(1);
  absl::Duration retry_min = absl::Milliseconds(100);
  absl::Duration retry_max = absl::Seconds(2);
  absl::Duration welcome_timeout = absl::Seconds(3);
  // Of events that a router has not taken yet: over 1,000 steps of 128 sequences.
  size_t pending_bytes_max = 16 << 20;
};

class AttachClient final : public RouterEvents {
 public:
  // Borrows `engine` and `probe`, which outlive it; a probe (or null) is shown each load.
  AttachClient(AttachOptions options, EngineControl& engine, WorkerProbe* probe);
  ~AttachClient() override;

  // Dials; until then nobody is attached. Call at most once.
  void Start(WorkerHello hello);
  // No new work, please: told to every router, now and on each later attach.
  void AnnounceDraining();
  // Ends every stream in good order, which sends what was published; cancels those that have not ended after `flush`.
  // Blocks. Idempotent.
  void Stop(absl::Duration flush);

  void Publish(absl::Span<const TokenEvent> events) override;
  bool IsAttached(const base::Id128& router) const override;
  uint32_t routers_attached() const;

 private:
  class Stream;
  struct Router;

  void Run();
  void DialThoseDue(absl::Time now);
  void ReportLoad(absl::Time now);
  // By a stream: its router said welcome; all is over.
  void OnWelcome(Stream& stream);
  void OnEnded(const Stream& stream, const absl::Status& status);
  std::vector<std::shared_ptr<Stream>> streams() const;
  bool all_away() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AttachOptions options_;
  EngineControl& engine_;
  WorkerProbe* const probe_;
  WorkerHello hello_;  // Constant once started.

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::unique_ptr<Router>> routers_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::worker
