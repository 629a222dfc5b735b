// The rules of the decode side's end of all hand-offs: a state machine without threads, I/O or clock.
//
//            Expect, Offer (in any order)      ranges, Seal           all ranges are here
//   unknown ────────────────────────► accepted ────────────► sealed ─────────────────────► ready
//                                         │                    │
//                                         └──── Abort, Cancel, link lost, no progress, ──► failed
//                                               deadline, checksum or digest wrong
//
// It owns the reservation of each expected hand-off and binds blocks of it as ranges come; both are the pool's again when
// it fails. A range is done when it was announced, its bytes are in our blocks, and they were checked: the driver does
// that in NextFetch() / OnRangeFetched(), copying first if the link's bytes are ours to copy.
//
// An offer may overtake its Expect(): it is held for `early_offer_hold`, then refused with NOT_FOUND. One that never comes
// is waited for during `offer_timeout`: its worker may have died before there was a link to lose. A source that owes
// something (bytes of an announced range, ranges of a sealed hand-off) must move within `no_progress_timeout`, and every
// link must be heard of within that time (sources send heartbeats).
//
// Whoever drives it passes `now` (never going back), carries out TakeActions() in order after each call, and calls Tick()
// at NextDeadline(). Everything a peer says is checked here: what makes no sense fails that hand-off with
// INVALID_ARGUMENT on both sides, what concerns an unknown key is refused. Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/id128.h"
#include "kvstore/handoff.h"
#include "kvstore/handoff_messages.h"
#include "kvstore/kv_block_pool.h"

namespace baton::kvstore {

struct HandoffSinkOptions {
  uint32_t layers = 0;
  uint32_t block_tokens = 0;
  uint64_t layer_block_bytes = 0;
  absl::Duration no_progress_timeout = absl::Seconds(3);
  absl::Duration early_offer_hold = absl::Seconds(1);
  absl::Duration offer_timeout = absl::Seconds(10);  // Well above a prefill step: prompts are offered between two.
  uint32_t early_offers_max = 1024;
  uint32_t ended_keys_max = 4096;  // Remembered, so that a late offer is refused at once.
};

// How the bytes of a link's ranges come.
enum class RangeDelivery {
  kCopied,  // We copy them out of the source's memory.
  kPushed,  // The source sends them.
};

struct SendToSource {
  LinkId link;
  SinkMessage message;
};

// Terminal, one of the two for each Expect() that was not cancelled.
struct HandoffReady {
  HandoffKey key;
  ReceivedHandoff received;
};
struct HandoffFailed {
  HandoffKey key;
  absl::Status status;
};

// The link is of no use any more; OnLinkLost() was done for it.
struct CloseLink {
  LinkId link;
  absl::Status status;
};

using SinkAction = std::variant<SendToSource, HandoffReady, HandoffFailed, CloseLink>;

// A range to be copied (if the link is kCopied) and checked.
struct RangeFetch {
  LinkId link;
  RangeDelivery delivery;
  AnnounceRange range;
  std::vector<KvBlockId> destination;  // Ours, one a block of the range.
  uint64_t serial = 0;                 // Of the hand-off.
};

// A piece of a range that was pushed to us.
struct PushedBytes {
  HandoffKey key;
  uint32_t range_index = 0;
  uint32_t layer = 0;
  uint32_t first_block = 0;
  uint32_t block_count = 0;
  uint64_t offset = 0;  // In the range's bytes: where the last piece ended.
  uint64_t bytes = 0;   // > 0
};

class HandoffSink {
 public:
  // `pool` outlives it. CHECKs at its end that no hand-off is left: call Shutdown().
  HandoffSink(const HandoffSinkOptions& options, KvBlockPool& pool);
  ~HandoffSink();
  HandoffSink(const HandoffSink&) = delete;
  HandoffSink& operator=(const HandoffSink&) = delete;

  // What the decode worker does; see HandoffReceiver.
  void Expect(const HandoffKey& key, ExpectedHandoff expected, absl::Time now);
  // REQUIRES: no fetch of `key` is between NextFetch() and OnRangeFetched(), none of its bytes are being copied.
  bool Cancel(const HandoffKey& key);
  void Decline(const HandoffKey& key);

  // What the links do. A link is up once, then lost once. A new link of an incarnation takes the place of the old one.
  void OnLinkUp(LinkId link, const base::Id128& incarnation, RangeDelivery delivery, absl::Time now);
  void OnLinkLost(LinkId link, const absl::Status& status);
  void OnMessage(LinkId link, const SourceMessage& message, absl::Time now);

  // Pushed bytes came: where they go, one block of ours a block of the range; nothing if they are to be dropped. Once they
  // lie there: OnBytesPlaced().
  std::optional<std::vector<KvBlockId>> OnBytes(LinkId link, const PushedBytes& pushed,
                                                absl::Time now);
  void OnBytesPlaced(const PushedBytes& pushed, absl::Time now);

  // The next range to copy and check; nothing: none is due. One at a time: OnRangeFetched() comes before the next one.
  std::optional<RangeFetch> NextFetch();
  bool fetch_due() const { return !fetches_.empty(); }  // NextFetch() may still find it cancelled.
  void OnRangeFetched(const RangeFetch& fetch, const absl::Status& status, absl::Time now);

  void Tick(absl::Time now);
  absl::Time NextDeadline() const;  // Infinite: nothing is waited for.

  // Fails all that is expected with `status`.
  void Shutdown(const absl::Status& status);

  std::vector<SinkAction> TakeActions();

  size_t handoff_count() const { return handoffs_.size(); }
  size_t early_offer_count() const { return early_.size(); }

 private:
  struct Link {
    base::Id128 incarnation;
    RangeDelivery delivery;
    absl::Time last_heard;
  };

  struct Range {
    std::optional<AnnounceRange> announced;
    uint32_t layer = 0;
    uint32_t first_block = 0;
    uint32_t block_count = 0;
    uint64_t bytes_placed = 0;  // Of pushed ones.
    bool done = false;
  };

  struct Handoff {
    ExpectedHandoff expected;
    uint64_t serial = 0;            // Tells it from an earlier one of the same key.
    std::optional<LinkId> link;     // Accepted over it.
    std::vector<KvBlockId> blocks;  // Of the prompt, in order; bound if `bound` says so.
    std::vector<bool> bound;
    uint32_t bound_count = 0;
    std::map<uint32_t, Range> ranges;  // By range index; layers * blocks at most, since none overlap.
    std::vector<bool> covered;         // By layer * blocks.size() + block.
    uint32_t ranges_done = 0;
    uint32_t ranges_owed = 0;  // Known, but something of it has not come.
    std::optional<SealHandoff> seal;
    absl::Time sealed_at;
    absl::Time last_progress;
  };
  using Table = std::map<HandoffKey, Handoff>;

  // An offer (or an abort) whose Expect() did not come yet.
  struct Early {
    LinkId link;
    uint32_t tokens = 0;
    std::optional<absl::Status> aborted;
    absl::Time expires;
  };

  struct FetchDue {
    HandoffKey key;
    uint64_t serial;
    uint32_t range_index;
  };

  void Handle(LinkId link, const OfferHandoff& offer, absl::Time now);
  void Handle(LinkId link, const AnnounceRange& announce, absl::Time now);
  void Handle(LinkId link, const SealHandoff& seal, absl::Time now);
  void Handle(LinkId link, const AbortHandoff& abort, absl::Time now);
  void Handle(LinkId, const Heartbeat&, absl::Time) {}

  void Send(LinkId link, SinkMessage message);
  void Refuse(LinkId link, const HandoffKey& key, const absl::Status& reason);
  void HoldEarly(LinkId link, const HandoffKey& key, Early early);
  void Accept(Table::iterator at, LinkId link, uint32_t tokens, absl::Time now);
  // The hand-off of `key` if it was accepted over `link`; else end(), and an unknown one was refused.
  Table::iterator FindAccepted(LinkId link, const HandoffKey& key);

  // The record of a range, made if it is new. INVALID_ARGUMENT: it lies outside, overlaps another or changed.
  absl::StatusOr<Range*> RangeAt(Handoff& handoff, uint32_t range_index, const Range& shape);
  absl::Status CheckShape(const Handoff& handoff, uint32_t range_index, const Range& shape) const;
  absl::Status CheckPushed(const Handoff& handoff, const PushedBytes& pushed) const;
  absl::Status CheckSeal(const Handoff& handoff, const SealHandoff& seal) const;
  std::vector<KvBlockId> Bind(Handoff& handoff, const Range& range);
  bool IsHere(const Handoff& handoff, const Range& range) const;
  void FetchIfHere(const HandoffKey& key, Handoff& handoff, uint32_t range_index, Range& range);
  void CompleteIfDone(Table::iterator at, absl::Time now);
  bool SourceOwes(const Handoff& handoff) const;
  absl::Time DeadlineOf(const Handoff& handoff) const;

  // Terminal. Tells the source too if it knows of the hand-off.
  void FailAndTell(Table::iterator at, const absl::Status& status);
  void Fail(Table::iterator at, const absl::Status& status);
  // Gives all back to the pool and forgets.
  void Drop(Table::iterator at);
  void RememberEnded(const HandoffKey& key);

  const HandoffSinkOptions options_;
  KvBlockPool& pool_;
  Table handoffs_;
  std::map<LinkId, Link> links_;
  std::map<HandoffKey, Early> early_;      // early_offers_max at most.
  std::set<HandoffKey> ended_;             // ended_keys_max at most.
  std::deque<HandoffKey> ended_in_order_;  // The same, oldest first.
  std::deque<FetchDue> fetches_;           // Of ranges in the table, plus some of forgotten hand-offs.
  uint64_t next_serial_ = 1;
  std::vector<SinkAction> actions_;
};

}  // namespace baton::kvstore
