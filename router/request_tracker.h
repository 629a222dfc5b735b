// The requests of one lane, from tokens in hand to their one terminal status: placement, attempts,
// relay, cancel.
//
//   Start ─▶ queued ──(Place)──▶ placed: Admit and Prefill are out, events come ──▶ ended
//              ▲                    │  a worker refused, failed or was lost, and the client was
//              sent no token └────────────────────┘  (attempt + 1, both workers told to stop)
//
// All of it runs on the lane's thread but for wants_capacity(); so there are no locks, and the
// events of a request stay in order. A request ends exactly once, in End(): nothing else touches
// the sink for the last time.
//
// What is sent to the client is held until (1) the decode worker has admitted the request, so that
// a refusal can still be answered by another worker, and (2) prompt log-probabilities, if asked
// for, are there.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/id128.h"
#include "router/request.h"
#include "router/router_probe.h"
#include "router/served_model.h"
#include "router/token_relay.h"
#include "router/work_lane.h"
#include "router/worker_registry.h"

namespace baton::router {

// A request as the text pool hands it over.
struct PreparedRequest {
  RequestSpec spec;
  std::shared_ptr<const std::vector<uint32_t>> tokens;
  std::shared_ptr<AnswerSink> sink;
  absl::Time text_done;
};

// Shared by the trackers of all lanes.
struct TrackerLimits {
  uint32_t failures_max = 3;           // Failed attempts of a request.
  uint32_t workers_lost_max = 2;       // Workers lost under a request: its prompt may be why.
  int64_t queue_tokens_max = 1 << 20;  // Prompt tokens that wait for a worker, over all lanes.
  absl::Duration queue_wait_max = absl::Seconds(60);
  absl::Time workers_expected;  // Until then a request waits for the first worker.
};

class RequestTracker {
 public:
  // All outlive the tracker. `on_end` is called once a request, `on_capacity` when a worker may
  // have got room, both on the lane. `queue_tokens` is shared by all lanes.
  struct Context {
    const ServedModel& model;
    WorkerRegistry& registry;
    RouterProbe& probe;
    WorkLane& lane;
    std::atomic<int64_t>& queue_tokens;
    base::Id128 router_incarnation;
    TrackerLimits limits;
    std::function<void()> on_end;
    std::function<void()> on_capacity;
  };
  explicit RequestTracker(Context context);
  ~RequestTracker();

  void Start(PreparedRequest prepared);
  // Unknown requests are ignored.
  void Cancel(const base::Id128& id, const absl::Status& why);
  void OnStepBatch(const StepBatch& batch);
  void OnWorkerLost(const Worker& worker);
  // Places what waits, as far as there is room.
  void ServeQueue();
  void OnAlarm();
  void FailAll(const absl::Status& status);

  // Requests wait for a worker. Any thread.
  bool wants_capacity() const { return queued_.load(std::memory_order_relaxed) > 0; }

 private:
  struct Request;
  enum class Leg { kPrefill, kDecode };
  enum class Served { kPlaced, kWaits, kEnded };

  // Queue.
  Served TryPlace(Request& request);
  void Enqueue(Request& request);
  void Dequeue(Request& request);
  bool QueueHasRoom(const Request& request) const;

  // Attempts.
  void Dispatch(Request& request, WorkerRegistry::Placed placed);
  void OnReply(const RequestKey& key, Leg leg, const Worker& worker, const absl::Status& status);
  void OnRefusal(Request& request, const Worker& worker);
  void OnFailure(Request& request, const Worker* exclude, const absl::Status& why);
  void OnEngineError(Request& request, Leg leg, const absl::Status& why);
  void OnPrefillLost(Request& request, const absl::Status& why);
  void Requeue(Request& request, absl::Time not_before);
  void OnSuspectLost(Request& request, const Worker& worker);
  static absl::Status Quarantined(const Request& request);
  void EndAttempt(Request& request, bool cancel_workers);
  void EndPromptCount(Request& request);

  // Relay.
  void OnEvent(const StepBatch& batch, const TokenEvent& event, absl::Time now);
  void TakeReports(Request& request, const EventExtras& extras, absl::Time now);
  static absl::Duration HandoffTime(const Request& request);
  void Relay(Request& request, const StepBatch& batch, const TokenEvent& event, absl::Time now);
  bool MaySend(const Request& request) const;
  void Send(Request& request, absl::Time now);
  void NoteSent(Request& request, absl::Time now);
  // Ends the request when it is complete and all that its last message needs is here.
  void EndIfComplete(Request& request, absl::Time now);

  // Ends. The request is gone afterwards.
  void Succeed(Request& request, absl::Time now);
  void Fail(Request& request, const absl::Status& status);
  void Erase(Request& request);

  // Timers.
  void Schedule(Request& request);
  void OnTimer(Request& request, absl::Time now);

  Request* Find(const base::Id128& id);

  const Context context_;
  absl::flat_hash_map<base::Id128, std::unique_ptr<Request>> requests_;
  absl::btree_map<uint64_t, Request*> queue_;  // By ticket: first come, first served.
  uint64_t tickets_ = 0;
  absl::btree_set<std::pair<absl::Time, base::Id128>> timers_;
  std::atomic<int64_t> queued_{0};
};

}  // namespace baton::router
