// The prefill worker's end of hand-offs, over links that it dials.
//
//   engine ─ Begin, Announce, Seal, Abort ─▶ inbox ─▶ hand-off thread ─▶ HandoffSource ─▶ LinkClient, one a peer
//                                             ▲                                              │
//                                             └──────────────── replies, ends ───────────────┘
//
// One thread owns the state machine and the links. It computes checksums and, for pushed ranges, copies one frame at a time
// out of the arena, taking the hand-offs of a link in turn; what was not copied yet stays where it is. A link is dialled for
// the first hand-off to a peer and shared by all; after a loss it is dialled anew, at growing intervals.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kvstore/handoff.h"
#include "kvstore/handoff_source.h"
#include "kvstore/transfer/link_client.h"
#include "kvstore/transfer/link_worker.h"
#include "kvstore/transfer/shm_transport.h"
#include "kvstore/transfer/steady_clock.h"

namespace baton::kvstore {

struct LinkSenderOptions {
  // What may be used, best first. Loopback needs LinkWorker::loopback, and is left out without.
  std::vector<TransportKind> transports = {TransportKind::kLoopback, TransportKind::kShm,
                                           TransportKind::kGrpc};
  bool checksums = true;
  absl::Duration no_progress_timeout = absl::Seconds(3);
  absl::Duration heartbeat_interval = absl::Milliseconds(500);  // Well below the sink's timeout.
  absl::Duration redial_delay_min = absl::Milliseconds(100);
  absl::Duration redial_delay_max = absl::Seconds(1);
  uint32_t handoffs_max = 4096;
};

class LinkSender final : public HandoffSender, private LinkClientEvents {
 public:
  // `events` outlives it. UNAVAILABLE: shared memory is asked for and cannot be had.
  static absl::StatusOr<std::unique_ptr<LinkSender>> Create(LinkWorker worker,
                                                            const LinkSenderOptions& options,
                                                            HandoffSenderEvents& events);
  // Ends all hand-offs with CANCELLED and closes all links.
  ~LinkSender() override;

  void Begin(const HandoffKey& key, const HandoffPeer& peer, uint32_t tokens) override;
  void Announce(const HandoffKey& key, uint32_t layer, uint32_t first_block,
                absl::Span<const KvBlockId> blocks) override;
  void Seal(const HandoffKey& key, SealInfo info) override;
  void Abort(const HandoffKey& key, const absl::Status& reason) override;
  Pins pins() const override;

 private:
  using PeerName = std::pair<std::string, base::Id128>;  // Address and incarnation.

  // Ranges of one hand-off that wait to be pushed.
  struct PushQueue {
    std::deque<AnnounceRange> ranges;
    uint64_t offset = 0;  // Of the first one's bytes: pushed so far. 0: it is not announced either.
  };

  struct Link {
    HandoffPeer peer;
    std::unique_ptr<LinkClient> client;  // Null: not dialled yet.
    absl::Time dial_at;
    absl::Time dialled_at;
    base::Id128 link_id;
    std::string shm_nonce;
    std::optional<TransportKind> transport;  // Set: it is up.
    bool lost = false;                       // It only waits for OnLinkEnded.
    absl::Time heartbeat_at;
    std::map<HandoffKey, PushQueue> pushes;
    std::deque<HandoffKey> push_turns;  // The keys of `pushes`, next one first.
  };

  struct Redial {
    absl::Time not_before;
    absl::Duration delay;
  };

  struct Active {
    LinkId link;
    absl::Time since;
  };

  LinkSender(LinkWorker worker, const LinkSenderOptions& options, HandoffSenderEvents& events);

  // gRPC's threads.
  void OnHelloReply(LinkId link, const LinkHelloReply& reply) override;
  void OnMessage(LinkId link, const SinkMessage& message) override;
  void OnFrameWritten(LinkId link) override;
  void OnLinkEnded(LinkId link, const absl::Status& status) override;

  // Has the hand-off thread run `work`.
  void Post(std::function<void()> work);

  // The hand-off thread, as all below.
  void Run();
  bool WaitForWork(std::vector<std::function<void()>>& work);
  absl::Time NextWake() const;
  void StopAll();

  LinkId LinkTo(const HandoffPeer& peer);
  void Dial(LinkId id, Link& link);
  void Greeted(LinkId id, const LinkHelloReply& reply);
  absl::Status CheckReply(const Link& link, const LinkHelloReply& reply) const;
  void Lose(LinkId id, Link& link, const absl::Status& status);
  void Forget(LinkId id, const absl::Status& status);
  void TendLinks();

  void CarryOut();
  void CarryOut(SendToSink& action);
  void CarryOut(HandoffEnded& action);
  void PushWhatFits(LinkId id, Link& link);
  void PushFrame(Link& link, const HandoffKey& key, PushQueue& queue);
  uint64_t ChecksumOf(const AnnounceRange& range) const;
  uint64_t RangeBytes(const AnnounceRange& range) const;
  void PublishPins();

  const LinkWorker worker_;
  const LinkSenderOptions options_;
  HandoffSenderEvents& events_;
  const SteadyClock clock_;
  std::vector<TransportKind> transports_;
  std::unique_ptr<ShmListener> shm_;  // Null: not offered.

  // Owned by the hand-off thread.
  HandoffSource source_;
  std::map<LinkId, Link> links_;
  std::map<PeerName, LinkId> link_of_peer_;  // The one that is not lost.
  std::map<PeerName, Redial> redials_;       // Of peers lost a moment ago.
  std::map<HandoffKey, Active> active_;
  uint64_t next_link_ = 1;

  mutable base::Mutex mutex_;
  base::CondVar wake_;
  // What the engine announced (bounded by the blocks that it holds) and the replies read ahead.
  std::vector<std::function<void()>> inbox_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t owed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Time> oldest_pin_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace baton::kvstore
