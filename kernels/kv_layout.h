// How KV lies in an arena. One layout serves prefill, decode and hand-off on every CPU level.
//
//   arena  = [layer][block] [kv_head] { K, V }          "layer_block_head_kpair_vpair"
//
// The arena is layer-major: blocks of one layer lie side by side, so that attention over a sequence whose blocks were
// taken in order streams through memory, and one (chunk, layer) of a hand-off is few contiguous ranges.
// Inside a (layer, block, kv_head), for block_tokens B, head_dim D (even), element size e:
//
//   16-bit types   K [D/2][B][2]     element (token t, dim d)  at  (d/2 * B + t) * 2 + d%2
//                  V [B/2][D][2]     element (token t, dim d)  at  (t/2 * D + d) * 2 + t%2
//   F32            K [D][B]          element (t, d)            at  d * B + t
//                  V [B][D]          element (t, d)            at  t * D + d
//
// Pairs suit vdpbf16ps: QK takes two dims of one token, PV two tokens of one dim. RoPE is in interleaved form
// (pairs (2i, 2i+1) rotate together), as GGUF stores Llama; loaders of other files permute q and k rows to it.
// A fresh arena is zeroed: rows that are not written yet must be finite, since 0 * NaN is NaN.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace baton::kernels {

enum class KvType : uint8_t { kF32 = 1, kF16 = 2, kBf16 = 3 };

struct KvLayout {
  uint32_t layers = 0;        // [1, 1024]
  uint32_t kv_heads = 0;      // [1, 1024]
  uint32_t head_dim = 0;      // [2, 1024], even.
  uint32_t block_tokens = 0;  // 8, 16, 32, 64 or 128.
  KvType type = KvType::kBf16;

  uint32_t element_bytes() const { return type == KvType::kF32 ? 4 : 2; }
  // K or V of one head of one block.
  uint64_t plane_bytes() const { return uint64_t{block_tokens} * head_dim * element_bytes(); }
  uint64_t head_bytes() const { return 2 * plane_bytes(); }
  // One block in one layer: the unit of hand-off.
  uint64_t layer_block_bytes() const { return kv_heads * head_bytes(); }
  // One block in all layers: what a block costs.
  uint64_t block_bytes() const { return layers * layer_block_bytes(); }

  bool operator==(const KvLayout&) const = default;
};

// INVALID_ARGUMENT, naming field, value and legal range.
absl::Status Validate(const KvLayout& layout);

// Where element (token of the block, dim) stands in a plane of K or of V, in elements.
inline uint64_t KIndex(const KvLayout& layout, uint32_t token, uint32_t dim) {
  if (layout.type == KvType::kF32) return uint64_t{dim} * layout.block_tokens + token;
  return (uint64_t{dim / 2} * layout.block_tokens + token) * 2 + dim % 2;
}
inline uint64_t VIndex(const KvLayout& layout, uint32_t token, uint32_t dim) {
  if (layout.type == KvType::kF32) return uint64_t{token} * layout.head_dim + dim;
  return (uint64_t{token / 2} * layout.head_dim + dim) * 2 + token % 2;
}

// An arena seen through its layout. Plain data; the arena outlives it. Who may write is the arena owner's affair.
struct PagedKvView {
  KvLayout layout;
  uint32_t block_count = 0;
  uint8_t* base = nullptr;  // 64-byte aligned; layout.block_bytes() * block_count bytes.

  // The bytes of a block in a layer, layout.layer_block_bytes() of them.
  uint8_t* LayerBlock(uint32_t layer, uint32_t block) const {
    return base + (uint64_t{layer} * block_count + block) * layout.layer_block_bytes();
  }
  uint8_t* K(uint32_t layer, uint32_t block, uint32_t kv_head) const {
    return LayerBlock(layer, block) + kv_head * layout.head_bytes();
  }
  uint8_t* V(uint32_t layer, uint32_t block, uint32_t kv_head) const {
    return K(layer, block, kv_head) + layout.plane_bytes();
  }
};

}  // namespace baton::kernels
