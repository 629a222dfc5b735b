// One row of rope_append: what a CPU level brings to it. The loop over rows and threads is rope_append.cc.
#pragma once

#include <cstdint>

#include "kernels/kv_layout.h"

namespace baton::kernels {

struct RopeRow {
  float* q;        // [heads, head_dim]
  const float* k;  // [kv_heads, head_dim]
  const float* v;  // [kv_heads, head_dim]
  const float* cos;  // [rope_dims / 2]
  const float* sin;  // [rope_dims / 2]
  uint32_t rope_dims;
  uint32_t heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  KvType type;
  uint32_t block_tokens;
  uint32_t token;        // In the block.
  uint8_t* k_plane;      // Of KV head 0.
  uint64_t plane_bytes;  // V of a head follows K, the next head follows V.
};

void RopeAppendRowAvx512(const RopeRow& row);

}  // namespace baton::kernels
