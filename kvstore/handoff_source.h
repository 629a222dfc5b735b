// The rules of the prefill side's end of all hand-offs: a state machine without threads, I/O or clock.
//
//             link up            Accept            Seal, all sent         Complete
//   connecting ─────► offered ──────────► accepted ────────────► sealed ──────────► ended OK
//        │               │                   │                      │
//        └───────────────┴── Abort, Refuse, link lost, no progress ─┴─────────────► ended with an error
//
// Ranges announced before the sink accepted are held. Every wait for the peer has a deadline: `no_progress_timeout` since
// the hand-off last moved. While the peer owes nothing (the engine is still computing) there is none.
//
// Whoever drives it passes `now` (never going back), carries out TakeActions() in order after each call, and calls Tick()
// at NextDeadline(). Messages of the peer are checked here: what makes no sense ends the hand-off with INTERNAL, and what
// concerns an unknown key is ignored, since it is late. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvstore/handoff.h"
#include "kvstore/handoff_messages.h"

namespace baton::kvstore {

struct HandoffSourceOptions {
  absl::Duration no_progress_timeout = absl::Seconds(3);
  uint32_t range_blocks_max = 64;  // Longer announcements are cut. > 0.
  uint32_t handoffs_max = 4096;    // At once; more end with RESOURCE_EXHAUSTED.
};

struct SendToSink {
  LinkId link;
  SourceMessage message;  // The checksum of an AnnounceRange is yet to be filled in.
};

// Terminal, once for each Begin(): the blocks are no longer read.
struct HandoffEnded {
  HandoffKey key;
  absl::Status status;
};

using SourceAction = std::variant<SendToSink, HandoffEnded>;

class HandoffSource {
 public:
  explicit HandoffSource(const HandoffSourceOptions& options) : options_(options) {}

  // What the engine does; see HandoffSender.
  void Begin(const HandoffKey& key, LinkId link, uint32_t tokens, absl::Time now);
  void Announce(const HandoffKey& key, uint32_t layer, uint32_t first_block,
                absl::Span<const KvBlockRef> blocks, absl::Time now);
  void Seal(const HandoffKey& key, SealInfo info, absl::Time now);
  void Abort(const HandoffKey& key, const absl::Status& reason);

  // What the link does. A link is up once, then lost once.
  void OnLinkUp(LinkId link, absl::Time now);
  void OnLinkLost(LinkId link, const absl::Status& status);
  void OnMessage(LinkId link, const SinkMessage& message, absl::Time now);

  void Tick(absl::Time now);
  absl::Time NextDeadline() const;  // Infinite: nothing is waited for.

  std::vector<SourceAction> TakeActions();

  bool knows(const HandoffKey& key) const { return handoffs_.contains(key); }
  size_t handoff_count() const { return handoffs_.size(); }

  struct Pins {
    uint64_t owed_layer_blocks = 0;    // Announced, not acknowledged.
    uint64_t blocks = 0;               // Announced in any layer, of hand-offs that did not end.
    std::optional<absl::Time> oldest;  // When the oldest of these hand-offs first announced.
  };
  Pins pins() const;

 private:
  enum class State { kConnecting, kOffered, kAccepted };

  struct Range {
    uint32_t blocks = 0;
    bool acknowledged = false;
  };

  struct Handoff {
    LinkId link;
    uint32_t tokens = 0;
    State state = State::kConnecting;
    std::vector<AnnounceRange> held;  // Announced before the sink accepted.
    std::vector<Range> ranges;        // Indexed by range; the held ones included.
    uint32_t unacknowledged = 0;      // Of `ranges`.
    uint64_t owed_blocks = 0;         // Of the unacknowledged ranges.
    std::optional<SealInfo> seal;
    bool seal_sent = false;
    uint32_t blocks = 0;  // One past the last block announced.
    absl::Time last_progress;
    std::optional<absl::Time> first_announced;
  };
  using Table = std::map<HandoffKey, Handoff>;

  static bool WaitsForPeer(const Handoff& handoff);
  void Send(LinkId link, SourceMessage message);
  void Offer(const HandoffKey& key, Handoff& handoff, absl::Time now);
  void SendSealIfDue(const HandoffKey& key, Handoff& handoff, absl::Time now);
  Table::iterator End(Table::iterator at, const absl::Status& status);
  // Ends it, and tells the sink why.
  Table::iterator EndAndTell(Table::iterator at, const absl::Status& reason,
                             const absl::Status& status);

  void Handle(Table::iterator at, const AcceptHandoff& accept, absl::Time now);
  void Handle(Table::iterator at, const AcknowledgeRange& acknowledge, absl::Time now);
  void Handle(Table::iterator at, const CompleteHandoff& complete, absl::Time now);
  void Handle(Table::iterator at, const RefuseHandoff& refuse, absl::Time now);

  const HandoffSourceOptions options_;
  Table handoffs_;
  std::set<LinkId> links_up_;
  // Given up before the link was up: the sink must hear of it, or it would wait for an offer. At most one a Begin().
  std::multimap<LinkId, AbortHandoff> aborts_unsent_;
  std::vector<SourceAction> actions_;
};

}  // namespace baton::kvstore
