#include "kvstore/transfer/range_reader.h"

#include <memory>

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace baton::kvstore {

uint64_t RangeChecksum(const kernels::PagedKvView& view, uint32_t layer,
                       absl::Span<const KvBlockId> blocks) {
  alignas(64) XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const KvBlockId block : blocks) {
    XXH3_64bits_update(&state, view.LayerBlock(layer, static_cast<uint32_t>(block)),
                       view.layout.layer_block_bytes());
  }
  const uint64_t checksum = XXH3_64bits_digest(&state);
  return checksum == 0 ? 1 : checksum;
}

}  // namespace baton::kvstore
