// What a CPU level brings to attention: the work on one tile of rows against one chunk of keys. Which tiles there are and who
// computes them is attention_tasks.cc, compiled for every CPU.
//
// The order of sums that the row contract rests on:
//
//   chunk    kChunkKeys keys from position 0 on, wherever blocks begin and whatever else is in the batch
//   partial  of (row, chunk): maximum m of the scores, sum s and vector o of 2^(score - m) over the chunk's visible keys
//   state    of a row: its first partial, then the others merged into it one by one, in order of position
//
// Inside a chunk lanes and their order are fixed by position; keys that a row does not see add exactly 0.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"

namespace baton::kernels {

inline constexpr uint32_t kTileRows = 6;
inline constexpr uint32_t kChunkKeys = 512;

// A partial or a state: [sums of V: head_dim rounded up to 16][maximum][total][unused], 64-byte aligned.
inline constexpr uint32_t kPartialTail = 16;
inline uint32_t PartialFloats(uint32_t head_dim) { return (head_dim + 15) / 16 * 16 + kPartialTail; }

// The keys of a chunk for one KV head.
struct KeyChunk {
  const uint8_t* const* k_planes;  // Of each block that holds visible keys, in order; V follows K.
  uint32_t plane_bytes;
  uint32_t block_tokens;
  uint32_t head_dim;
};

struct QueryTile {
  const uint8_t* queries;   // [rows] packed queries, head_dim * query_bytes each.
  uint32_t rows;            // 1 .. kTileRows
  const uint32_t* visible;  // [rows] keys of the chunk that the row sees, rising; the last is >= 1.
};

struct AttentionKernel {
  uint32_t query_bytes;  // Of an element of a packed query.

  // Multiplies q [head_dim] by `scale` and packs it.
  void (*pack_query)(const float* q, uint32_t head_dim, float scale, uint8_t* packed);

  // Writes the partials of a tile, PartialFloats(head_dim) apart; those of rows that see nothing are undefined.
  // scratch: kTileScratchBytes, 64-byte aligned.
  void (*attend)(const KeyChunk& keys, const QueryTile& tile, uint8_t* scratch, float* partials);

  // Merges the partial of the next chunk into the state of a row.
  void (*merge)(const float* partial, uint32_t head_dim, float* state);

  // out [head_dim] = sums / total
  void (*finish)(const float* state, uint32_t head_dim, float* out);
};

// Scores and weights of a tile.
inline constexpr uint32_t kTileScratchBytes = 2 * kTileRows * kChunkKeys * sizeof(float);

void RunAttention(const AttentionArgs& args, const AttentionKernel& kernel, KernelContext& context);

// For a KV type each; the first has f32 math throughout.
const AttentionKernel& AttentionKernelAvx512(KvType type);
const AttentionKernel& AttentionKernelAvx512Bf16();

}  // namespace baton::kernels
