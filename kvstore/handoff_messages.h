// What the two ends of a hand-off say to each other, and the names they go by. Plain data; transfer/link_codec.h puts it
// on the wire.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/handoff.h"
#include "kvstore/kv_block_pool.h"

namespace baton::kvstore {

// A link as one end sees it: numbered by that end, never reused.
enum class LinkId : uint64_t {};

struct OfferHandoff {
  HandoffKey key;
  uint32_t tokens = 0;
};

// Blocks [first_block, first_block + blocks.size()) of the sequence are written in `layer`.
struct AnnounceRange {
  HandoffKey key;
  uint32_t range_index = 0;  // Counts the ranges of an attempt from 0.
  uint32_t layer = 0;
  uint32_t first_block = 0;
  std::vector<KvBlockRef> blocks;  // In the source's arena.
  uint64_t checksum = 0;           // XXH3-64 over the blocks' bytes in order; 0: none.
};

struct SealHandoff {
  HandoffKey key;
  uint32_t range_count = 0;
  SealInfo info;
};

struct AbortHandoff {
  HandoffKey key;
  absl::Status reason;  // OK: the answer ended at its first token.
};

struct Heartbeat {};

using SourceMessage =
    std::variant<OfferHandoff, AnnounceRange, SealHandoff, AbortHandoff, Heartbeat>;

struct AcceptHandoff {
  HandoffKey key;
};

struct AcknowledgeRange {
  HandoffKey key;
  uint32_t range_index = 0;
};

struct CompleteHandoff {
  HandoffKey key;
};

struct RefuseHandoff {
  HandoffKey key;
  absl::Status reason;  // Not OK.
};

using SinkMessage = std::variant<AcceptHandoff, AcknowledgeRange, CompleteHandoff, RefuseHandoff>;

}  // namespace baton::kvstore
