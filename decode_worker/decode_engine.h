// Decodes many sequences on one step thread, each joined when its KV has arrived or when its prompt was computed here.
//
//   Admit ─▶ pool: reserve ─▶ HandoffReceiver::Expect ─▶ OnHandoffReady ─┐ adopt
//               └──────────── no prefill worker: ────────────────────────┤ add
//                                                                        ▼
//                                              inbox ─▶ Runner::Step ─▶ one event batch a router
//
// One attempt on the step thread:
//
//   (inbox) ─▶ in hand-off ──ready──▶ in the runner ──finished──▶ gone
//                  │ failed, cancel, deadline, router gone │
//                  └──────────────▶ gone ◀─────────────────┘
//
// Admission is off the step loop: the ledger is the pool's own count of reservations, and Admit() answers on the calling
// thread. All else is the step thread's; other threads only fill the inbox.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "decode_worker/decode_queue.h"
#include "kernels/kv_layout.h"
#include "kvstore/handoff.h"
#include "kvstore/kv_block_pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "worker/attempt_inbox.h"
#include "worker/router_link.h"
#include "worker/sequence_table.h"
#include "worker/step_meter.h"
#include "worker/step_thread.h"
#include "worker/worker_probe.h"

namespace baton::decode_worker {

struct DecodeEngineOptions {
  runner::RunnerConfig runner;
  // Output tokens that an admission reserves room for beside the prompt: a small answer never waits for a block, and a
  // long one does not keep others out before it has grown.
  uint32_t headroom_tokens = 64;
};

class DecodeEngine final : public DecodeQueue,
                           public worker::EngineControl,
                           public kvstore::HandoffReceiverEvents {
 public:
  // Borrows all; they outlive it. REQUIRES: options.runner is valid for the model. As many attempts are admitted as
  // runner.running_max.
  DecodeEngine(model::Model& model, kvstore::KvBlockPool& pool, const kernels::PagedKvView& kv,
               const DecodeEngineOptions& options, worker::WorkerProbe& probe);
  // Gives all blocks and reservations back. REQUIRES: the receiver is gone.
  ~DecodeEngine() override;

  // Borrows both, until Stop().
  void Start(kvstore::HandoffReceiver& receiver, worker::RouterEvents& routers);
  // From now on Admit() says UNAVAILABLE.
  void Drain();
  // Waits until every attempt ended. False: not within `timeout`.
  bool WaitUntilIdle(absl::Duration timeout);
  // Ends all attempts with UNAVAILABLE.
  void Abandon();
  // Stops stepping. Idempotent.
  void Stop();

  absl::StatusOr<uint32_t> Admit(DecodeRequest request) override;

  void Cancel(const base::Id128& router, const worker::AttemptKey& key) override;
  void DropRouter(const base::Id128& router) override;
  worker::WorkerLoad load() const override;

  void OnHandoffReady(const kvstore::HandoffKey& key, kvstore::ReceivedHandoff received) override;
  void OnHandoffFailed(const kvstore::HandoffKey& key, const absl::Status& status) override;

 private:
  struct NewAttempt {
    worker::EngineRequest request;
    bool local = false;  // The prompt is computed here.
    uint32_t reserved_blocks = 0;
    absl::Time received;
  };
  // The receiver knows the attempt from now on: a cancel that came in between can be made good.
  struct Expected {
    worker::AttemptKey key;
  };
  struct HandoffReady {
    worker::AttemptKey key;
    kvstore::ReceivedHandoff received;
    absl::Time at;
  };
  struct HandoffFailed {
    worker::AttemptKey key;
    absl::Status status;
  };
  struct CancelAttempt {
    worker::AttemptKey key;
  };
  struct RouterGone {
    base::Id128 router;
  };
  struct AbandonAll {};
  // In the order things happened, which is the order in which they are taken.
  using InboxItem = std::variant<NewAttempt, Expected, HandoffReady, HandoffFailed, CancelAttempt,
                                 RouterGone, AbandonAll>;

  enum class Place { kHandoff, kRunner, kNowhere };

  struct Sequence {
    runner::SequenceId id;
    worker::AttemptKey key;
    base::Id128 router;
    absl::Time deadline;
    absl::Time received;
    Place place = Place::kHandoff;
    bool stopped = false;             // Its router hears nothing more.
    bool told = false;                // A token was told to the router.
    bool local = false;
    worker::EngineRequest request;    // Until it goes to the runner.
    uint32_t sample_index = 0;
    uint32_t next_position = 0;       // Output position of what is told next.
    std::optional<model::SampledToken> first_token;  // Of the hand-off; told with the next one.
    absl::Time kv_complete;
    absl::Duration handoff_took;
  };

  uint32_t BlocksToReserve(const worker::EngineRequest& request) const;
  void Push(InboxItem item);

  // The step thread.
  absl::Duration Turn();
  void TakeInbox(absl::Time now);
  void Take(NewAttempt item, absl::Time now);
  void Take(const Expected& item, absl::Time now);
  void Take(HandoffReady item, absl::Time now);
  void Take(const HandoffFailed& item, absl::Time now);
  void Take(const CancelAttempt& item, absl::Time now);
  void Take(const RouterGone& item, absl::Time now);
  void Take(const AbandonAll& item, absl::Time now);
  void StopExpired(absl::Time now);

  void Adopt(Sequence& sequence, HandoffReady item);
  absl::Status CheckReceived(const Sequence& sequence,
                             const kvstore::ReceivedHandoff& received) const;
  void GiveBack(const kvstore::ReceivedHandoff& received);
  void StopSequence(Sequence& sequence);
  void CancelHandoff(Sequence& sequence);
  // Stops it and tells the router why.
  void Fail(Sequence& sequence, const absl::Status& error);
  void Remove(Sequence& sequence);

  void TakeOutbox(runner::StepOutbox outbox, absl::Span<const runner::SequenceId> cancelled,
                  absl::Time now);
  void Tell(Sequence& sequence, runner::TokenOutput output, absl::Time now);
  void Report(Sequence& sequence, const runner::TokenOutput& output, absl::Time now,
              worker::TokenEvent& event);
  void LeaveInbox();
  worker::TokenEvent EventOf(const Sequence& sequence) const;
  absl::Duration SleepAfter(const runner::StepOutbox& outbox, absl::Time now) const;

  kvstore::KvBlockPool& pool_;
  const DecodeEngineOptions options_;
  const uint32_t block_tokens_;
  const uint32_t vocabulary_size_;
  const std::string model_digest_;
  const std::string numerics_class_;
  worker::WorkerProbe& probe_;
  worker::StepMeter meter_;
  kvstore::HandoffReceiver* receiver_ = nullptr;  // Set by Start().
  worker::RouterEvents* routers_ = nullptr;
  worker::AttemptInbox<InboxItem> inbox_;

  // The step thread's own.
  std::unique_ptr<runner::Runner> runner_;
  worker::SequenceTable<Sequence> sequences_;
  uint64_t next_id_ = 1;
  runner::StepInbox step_inbox_;
  std::vector<worker::TokenEvent> events_;
  std::vector<InboxItem> taken_;
  std::vector<worker::AttemptKey> left_;  // Over in this turn.

  worker::StepThread thread_;
};

}  // namespace baton::decode_worker
