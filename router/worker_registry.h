// The workers that are attached, what each last said of itself, and what this router placed on it
// since.
//
//   Attach ─▶ (first report) ─▶
//             ready ──(silent, or one step for too long)──▶ suspect ──▶ dead: FindDead() names it,
//             its owner detaches it
//               │ ▲────────────(reports again)───────────────┘
//               └──(SetDraining)──▶ draining: finishes what it has
//
// Owns state and takes no decision: those are placement's. Any thread; nothing of ours is called
// under its lock. Bounded by workers_max; every look is linear in the number of workers.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "router/placement.h"
#include "router/worker_messages.h"

namespace baton::router {

// Commands to a worker, over its Attach stream. Any thread, never blocks.
class WorkerConnection {
 public:
  virtual ~WorkerConnection() = default;
  virtual void Cancel(const RequestKey& key) = 0;
  virtual void Close(const absl::Status& status) = 0;
};

// Calls to a worker's own services. Any thread, never blocks; `done` runs on a thread of gRPC,
// once.
class WorkerCalls {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  virtual ~WorkerCalls() = default;
  // `decode` null: nothing is handed on.
  virtual void Prefill(const EngineRequest& request, const WorkerHello* decode, Done done) = 0;
  // `prefill` null: the worker computes the prompt too.
  virtual void Admit(const EngineRequest& request, const WorkerHello* prefill, Done done) = 0;
};

struct Worker {
  WorkerHello hello;
  std::shared_ptr<WorkerConnection> connection;
  std::shared_ptr<WorkerCalls> calls;
};

enum class WorkerState { kReady, kDraining, kSuspect };

struct WorkerSnapshot {
  WorkerHello hello;
  WorkerState state = WorkerState::kReady;
  LoadReport report;
};

class WorkerRegistry {
 public:
  struct Options {
    uint32_t workers_max = 256;
    absl::Duration suspect_after = absl::Seconds(1);
    absl::Duration dead_after = absl::Seconds(3);
    uint64_t seed = 0;  // Of the draw between equal workers.
  };

  // `clock` outlives this.
  WorkerRegistry(const Options& options, const base::Clock& clock);

  // ALREADY_EXISTS: that incarnation is attached. RESOURCE_EXHAUSTED: workers_max are.
  absl::Status Attach(std::shared_ptr<const Worker> worker);
  // The worker that was attached by this very connection; null: none (it may be attached by a newer
  // one).
  std::shared_ptr<const Worker> Detach(const base::Id128& incarnation,
                                       const WorkerConnection& connection);
  void Report(const base::Id128& incarnation, const LoadReport& report);
  void SetDraining(const base::Id128& incarnation);

  // Renews every worker's state; returns those that are dead. Call about ten times a second.
  std::vector<std::shared_ptr<const Worker>> FindDead();

  struct Placed {
    std::shared_ptr<const Worker> prefill;  // Null: the decode worker computes the prompt.
    std::shared_ptr<const Worker> decode;   // Null: max_tokens is 1.
    Placement terms;
  };
  // Decides on the present state and counts the request as placed, in one step, so that two
  // requests at once see each other. Errors are placement's. `exclude`: not these.
  absl::StatusOr<Placed> Place(const PlacementRequest& request,
                               absl::Span<const base::Id128> exclude);
  // What Place() counted ends: the prompt is computed (or will not be) ...
  void EndPrefill(const Worker& worker, uint32_t prompt_tokens);
  // ... the sequence left the decode worker, and left room there if it was admitted.
  void EndDecode(const Worker& worker, bool was_admitted);
  // `worker` refused so many tokens (prompt and answer) for want of room: no such request goes
  // there before it reports again or loses a sequence.
  void NoteRefusal(const Worker& worker, uint64_t tokens);

  // The shortest context of the workers; 0: none has said.
  uint32_t context_tokens() const;
  std::vector<WorkerSnapshot> List() const;

 private:
  struct Entry {
    std::shared_ptr<const Worker> worker;
    uint32_t compatibility = 0;
    WorkerState state = WorkerState::kReady;
    LoadReport report;
    bool has_reported = false;  // Before its first report a worker may not know of this router yet.
    absl::Time reported;
    // Placed by this router: prompt tokens without a first token, sequences on the decode side.
    uint64_t own_prompt_tokens = 0;
    uint32_t own_sequences = 0;
    // What the last report held of other routers' requests.
    uint64_t other_prompt_tokens = 0;
    uint32_t other_sequences = 0;
    // Placed since the last report, which cannot know of them.
    uint64_t unreported_tokens = 0;
    uint64_t refused_tokens = ~0ull;
  };

  Entry* Find(const base::Id128& incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // This very attachment of it: a worker that came back counts from nought.
  Entry* Find(const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t CompatibilityNumber(const std::string& digest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How long it made no progress that it should have made.
  absl::Duration SilentFor(const Entry& entry, absl::Time now) const;
  static WorkerLoad LoadOf(const Entry& entry);

  const Options options_;
  const base::Clock& clock_;
  mutable base::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  uint32_t compatibilities_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t draws_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace baton::router
