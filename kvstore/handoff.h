// Handing KV over, as the engines see it.
//
//   prefill engine ─▶ HandoffSender ══ link ══▶ HandoffReceiver ─▶ decode engine
//
// One attempt of one request is one hand-off, named by its HandoffKey. Each side ends in exactly one terminal call,
// whoever dies. The rules behind these interfaces are pure state machines (handoff_source.h, handoff_sink.h); what drives
// them over links and transports is in transfer/.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/id128.h"
#include "kvstore/kv_block_pool.h"

namespace baton::kvstore {

// One attempt at one request.
struct HandoffKey {
  base::Id128 request_id;
  uint32_t attempt = 0;

  auto operator<=>(const HandoffKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const HandoffKey& key) {
    return H::combine(std::move(state), key.request_id, key.attempt);
  }
  friend std::ostream& operator<<(std::ostream& out, const HandoffKey& key) {
    return out << key.request_id << '/' << key.attempt;
  }
};

// The first token of one sample, drawn on the prefill side.
struct FirstToken {
  uint32_t sample_index = 0;
  uint32_t token = 0;
  // As model::PositionLogprobs: the token's own, and the best ones as (token, log-probability); absent: not asked for.
  std::optional<float> logprob;
  std::vector<std::pair<uint32_t, float>> top;
  bool operator==(const FirstToken&) const = default;
};

// What the source says when everything was announced.
struct SealInfo {
  uint32_t tokens = 0;            // Of KV: the prompt's length.
  std::string last_block_digest;  // BlockDigest of the last full block, 32 bytes; empty if there is none.
  std::vector<FirstToken> first_tokens;
};

// Where to hand over to.
struct HandoffPeer {
  std::string address;      // host:port of its LinkService.
  base::Id128 incarnation;  // The process that must answer there.
};

// Told by a hand-off thread; must not block, and may call the sender back.
class HandoffSenderEvents {
 public:
  virtual ~HandoffSenderEvents() = default;
  // The sender no longer reads the blocks of `key`: their references may be dropped. OK: the sink has all of them. Other:
  // UNAVAILABLE (peer gone or no progress), FAILED_PRECONDITION (incompatible), NOT_FOUND (no reservation there),
  // CANCELLED (after Abort() or a refusal that means cancel). Exactly once after each Begin().
  virtual void OnHandoffEnded(const HandoffKey& key, const absl::Status& status) = 0;
};

// The prefill worker's end. Thread-safe; no call blocks. Calls for an ended or unknown key are ignored.
class HandoffSender {
 public:
  virtual ~HandoffSender() = default;

  // Starts a hand-off of `tokens` tokens of KV; opens the link to `peer` on first use.
  virtual void Begin(const HandoffKey& key, const HandoffPeer& peer, uint32_t tokens) = 0;

  // Blocks [first_block, first_block + blocks.size()) of the sequence hold all they will ever hold in `layer`. Each (layer,
  // block) is announced once. The caller keeps a reference to each block until OnHandoffEnded().
  virtual void Announce(const HandoffKey& key, uint32_t layer, uint32_t first_block,
                        absl::Span<const KvBlockId> blocks) = 0;

  // Everything was announced.
  virtual void Seal(const HandoffKey& key, SealInfo info) = 0;

  // Gives up. `reason` OK: the answer ended at its first token, and the sink just forgets the reservation.
  virtual void Abort(const HandoffKey& key, const absl::Status& reason) = 0;

  // Blocks announced and not yet let go of, for gauges.
  struct Pins {
    uint64_t owed_bytes = 0;
    std::optional<absl::Duration> oldest_age;
  };
  virtual Pins pins() const = 0;
};

// A hand-off that arrived whole: the caller owns one reference to each block.
struct ReceivedHandoff {
  std::vector<KvBlockId> blocks;  // The prompt's, in order; the last one perhaps not full.
  uint32_t reserved_left = 0;     // Of the reservation handed to Expect(), not consumed; the caller's again.
  SealInfo seal;
  absl::Duration seal_to_complete;  // Seal received until the last range was copied.
};

// Told by a hand-off thread; must not block, and may call the receiver back.
class HandoffReceiverEvents {
 public:
  virtual ~HandoffReceiverEvents() = default;
  // Terminal: all blocks are here, checksums and digest were right.
  virtual void OnHandoffReady(const HandoffKey& key, ReceivedHandoff received) = 0;
  // Terminal: blocks and reservation are back in the pool. UNAVAILABLE (peer gone, no progress), DATA_LOSS (checksum or
  // digest wrong), CANCELLED (the source aborted; OK inside the message "first token" means the answer ended there), or
  // whatever the source gave as its reason.
  virtual void OnHandoffFailed(const HandoffKey& key, const absl::Status& status) = 0;
};

// What the decode worker expects to receive.
struct ExpectedHandoff {
  base::Id128 prefill_incarnation;
  std::vector<uint32_t> tokens;  // Whose KV will come; for the block digests.
  std::string digest_extras;     // Extras of block identity (see block_hash.h).
  uint32_t blocks_reserved = 0;  // A reservation in the pool, given to the receiver until the terminal call.
  absl::Time deadline = absl::InfiniteFuture();
};

// The decode worker's end. Thread-safe; no call blocks.
class HandoffReceiver {
 public:
  virtual ~HandoffReceiver() = default;

  // Exactly one terminal event follows, unless Cancel() returns true first. The key is new.
  virtual void Expect(const HandoffKey& key, ExpectedHandoff expected) = 0;

  // Stops expecting; blocks and reservation are back in the pool on return. False: unknown, or the terminal event was
  // delivered or is about to be.
  virtual bool Cancel(const HandoffKey& key) = 0;

  // Nothing will be expected: an offer, here already or still to come, is refused at once and not held. No effect on a
  // key that is expected.
  virtual void Decline(const HandoffKey& key) = 0;
};

}  // namespace baton::kvstore
