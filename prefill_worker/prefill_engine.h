// Computes prompts on one step thread and hands their KV over, layer by layer, while it computes.
//
//   Submit ─▶ inbox ─▶ Runner::Step ─┬─ blocks written ─▶ HandoffSender::Announce      (inside the step)
//                                    ├─ first token ────▶ router, HandoffSender::Seal
//                                    └─ blocks ─────────▶ kept until OnHandoffEnded
//
// One attempt on the step thread:
//
//   (inbox) ─▶ in the runner ──────────────▶ sealed ─────────────▶ gone      both flags down: the entry goes
//                  │  cancel, deadline, router gone,  │
//                  └──▶ stopped ◀──── hand-off failed ┘                      says nothing more to its router
//
// `in_runner` falls with the runner's last word on the sequence, `handing_off` with OnHandoffEnded(); blocks go back when
// nobody reads them any more. All other state is the step thread's own; other threads only fill the inbox.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "kernels/kv_layout.h"
#include "kvstore/handoff.h"
#include "kvstore/kv_block_pool.h"
#include "model/model.h"
#include "prefill_worker/prefill_queue.h"
#include "prefill_worker/queue_budget.h"
#include "runner/runner.h"
#include "worker/attempt_inbox.h"
#include "worker/router_link.h"
#include "worker/sequence_table.h"
#include "worker/step_meter.h"
#include "worker/step_thread.h"
#include "worker/worker_probe.h"

namespace baton::prefill_worker {

struct PrefillEngineOptions {
  runner::RunnerConfig runner;
  QueueSize queue_max{.requests = 1024, .tokens = 1 << 18};
};

// Attempts whose prompt is computed and whose blocks a peer still copies, beside those in the queue.
inline constexpr uint32_t kHandoffsMax = 4096;

class PrefillEngine final : public PrefillQueue,
                            public worker::EngineControl,
                            public kvstore::HandoffSenderEvents,
                            private runner::StepObserver {
 public:
  // Borrows all; they outlive it. REQUIRES: options.runner is valid for the model.
  PrefillEngine(model::Model& model, kvstore::KvBlockPool& pool, const kernels::PagedKvView& kv,
                const PrefillEngineOptions& options, worker::WorkerProbe& probe);
  // Gives all blocks back. REQUIRES: the sender is gone, so that nobody reads them.
  ~PrefillEngine() override;

  // Borrows both, until Stop().
  void Start(kvstore::HandoffSender& sender, worker::RouterEvents& routers);
  // From now on Submit() says UNAVAILABLE.
  void Drain();
  // Waits until every attempt ended and was handed over. False: not within `timeout`.
  bool WaitUntilIdle(absl::Duration timeout);
  // Ends all attempts with UNAVAILABLE.
  void Abandon();
  // Stops stepping. Idempotent.
  void Stop();

  absl::Status Submit(PrefillRequest request) override;

  void Cancel(const base::Id128& router, const worker::AttemptKey& key) override;
  void DropRouter(const base::Id128& router) override;
  worker::WorkerLoad load() const override;

  void OnHandoffEnded(const kvstore::HandoffKey& key, const absl::Status& status) override;

 private:
  struct NewAttempt {
    PrefillRequest request;
    absl::Time received;
  };
  struct CancelAttempt {
    worker::AttemptKey key;
  };
  struct RouterGone {
    base::Id128 router;
  };
  struct HandoffEnded {
    worker::AttemptKey key;
    absl::Status status;
  };
  struct AbandonAll {};
  // In the order things happened, which is the order in which they are taken.
  using InboxItem =
      std::variant<NewAttempt, CancelAttempt, RouterGone, HandoffEnded, AbandonAll>;

  struct Sequence {
    runner::SequenceId id;
    worker::AttemptKey key;
    base::Id128 router;
    absl::Time deadline;
    absl::Time received;
    absl::Time sealed;
    std::vector<uint32_t> prompt;  // For the block digest; empty if nothing is handed over.
    std::string cache_salt;
    uint32_t prompt_tokens = 0;    // As counted in the queue; 0 once they are no longer.
    uint32_t sample_index = 0;
    uint32_t next_position = 0;    // Output position of what would be told next.
    bool in_runner = true;
    bool handing_off = false;      // OnHandoffEnded() will come.
    bool stopped = false;          // Its router hears nothing more.
    std::vector<kvstore::KvBlockId> blocks;  // Handed over by the runner; the peer may still read them.
  };

  // runner::StepObserver, on the step thread inside Runner::Step().
  void OnBlocksWritten(runner::SequenceId id, uint32_t layer, uint32_t first_block,
                       absl::Span<const kvstore::KvBlockId> blocks) override;

  absl::Status Enter(PrefillRequest request);
  void Push(InboxItem item);

  // The step thread.
  absl::Duration Turn();
  void TakeInbox(absl::Time now);
  void Take(NewAttempt item, absl::Time now);
  void Take(const CancelAttempt& item, absl::Time now);
  void Take(const RouterGone& item, absl::Time now);
  void Take(const HandoffEnded& item, absl::Time now);
  void Take(const AbandonAll& item, absl::Time now);
  void StopExpired(absl::Time now);
  // Stops work; `reason` goes to the peer.
  void StopSequence(Sequence& sequence, const absl::Status& reason);
  // The same, and tells the router why.
  void Fail(Sequence& sequence, const absl::Status& error);

  void TakeOutbox(runner::StepOutbox outbox, absl::Span<const runner::SequenceId> cancelled,
                  absl::Time now);
  void TakeFirstToken(Sequence& sequence, runner::TokenOutput output, absl::Time now);
  void SealThoseDrawn();
  void LeaveQueue(Sequence& sequence);
  void RemoveIfOver(Sequence& sequence);
  void LeaveInbox();
  worker::TokenEvent EventOf(const Sequence& sequence) const;
  absl::Duration SleepAfter(const runner::StepOutbox& outbox, absl::Time now) const;

  kvstore::KvBlockPool& pool_;
  const uint32_t block_tokens_;
  const std::string model_digest_;
  const std::string numerics_class_;
  worker::WorkerProbe& probe_;
  worker::StepMeter meter_;
  kvstore::HandoffSender* sender_ = nullptr;  // Set by Start().
  worker::RouterEvents* routers_ = nullptr;

  QueueBudget budget_;
  worker::AttemptInbox<InboxItem> inbox_;
  std::atomic<uint32_t> blocks_pinned_ = 0;

  // The step thread's own.
  std::unique_ptr<runner::Runner> runner_;
  worker::SequenceTable<Sequence> sequences_;
  uint64_t next_id_ = 1;
  runner::StepInbox step_inbox_;
  std::vector<worker::TokenEvent> events_;
  std::vector<std::pair<runner::SequenceId, kvstore::FirstToken>> to_seal_;
  std::vector<InboxItem> taken_;
  std::vector<worker::AttemptKey> left_;  // Over in this turn.
  QueueSize taken_size_;  // Of the new attempts among them.

  worker::StepThread thread_;
};

}  // namespace baton::prefill_worker
