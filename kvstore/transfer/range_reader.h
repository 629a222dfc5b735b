// The sink's way to the bytes of a source whose memory it can see.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/kv_layout.h"
#include "kvstore/handoff_messages.h"

namespace baton::kvstore {

class RangeReader {
 public:
  virtual ~RangeReader() = default;

  // Copies range.blocks[i] in range.layer to destination[i] of `into`. INVALID_ARGUMENT: the source has no such block.
  // UNAVAILABLE: a block has another owner by now; what was copied is worth nothing.
  virtual absl::Status Read(const AnnounceRange& range, const kernels::PagedKvView& into,
                            absl::Span<const KvBlockId> destination) = 0;
};

// XXH3-64 over the bytes of `blocks` in `layer`, in order; never 0, which means "no checksum".
uint64_t RangeChecksum(const kernels::PagedKvView& view, uint32_t layer,
                       absl::Span<const KvBlockId> blocks);

}  // namespace baton::kvstore
