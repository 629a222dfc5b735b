// Layout kPanels: weights in the exact order in which a tile reads them.
//
// Columns of results are taken 32 at a time: a *pair* of panels of 16 columns, one column a SIMD
// lane. A pair holds all of K, and pairs follow one another, so that a thread which computes
// neighbouring pairs reads memory strictly in address order. That order is worth more than 2x in
// decoding: hardware prefetchers follow it, and nothing else comes close.
//
// Within a pair, k runs in groups of 32 = 8 quads of 4. A quad of a panel is 64 bytes, byte 4*lane
// + i being element k = 4*quad + i of column `lane`: one operand of vpdpbusd. Quantised weights are
// unsigned, offset so that a 0 of the file's formula is 128 (Q4_0 shifted left by 4, Q6_K by 2,
// which their results are scaled back for) or kept as they are and accompanied by minima (Q4_1,
// Q4_K). Columns that pad the last pair are all zero bits: scale 0.
//
//   type   bytes of a pair  per k   bits a weight
//   Q4_0    576 / 32 k      18      4.5
//   Q4_1    640 / 32 k      20      5
//   Q8_0   1088 / 32 k      34      8.5
//   Q4_K   4736 / 256 k     18.5    4.625
//   Q6_K   6720 / 256 k     26.25   6.5625
//   F32     128 / 1 k; F16, BF16 64 / 1 k: [16 columns of panel 0][16 of panel 1]
//
// With kGateUp, panel 0 is gate and panel 1 is up of the same 16 columns.
#pragma once

#include <cstdint>

namespace baton::kernels {

inline constexpr uint32_t kPanelColumns = 16;
inline constexpr uint32_t kPairColumns = 2 * kPanelColumns;

using PairHalves = uint16_t[2][kPanelColumns];  // One f16 per column.
using PairBytes = uint8_t[2][kPanelColumns];
using PairQuad = uint8_t[2][64];

// 8 quads of 4-bit weights: entry i has quad 2i in the low nibbles and quad 2i + 1 in the high
// ones.
using PairNibbles = PairQuad[4];

struct PairQ4_0 {
  PairNibbles q;
  PairHalves scale;
};

struct PairQ4_1 {
  PairNibbles q;
  PairHalves scale;
  PairHalves min;
};

struct PairQ8_0 {
  PairQuad q[8];
  PairHalves scale;
};

struct PairQ4_K {
  PairHalves d;
  PairHalves d_min;
  struct Group {
    PairNibbles q;
    PairBytes scale;
    PairBytes min;
  } groups[8];
};

struct PairQ6_K {
  PairHalves d;
  struct Group {
    PairNibbles low;
    // [h]: bits 4 and 5 of quads 4h .. 4h + 3, two bits each, the lowest quad lowest.
    PairQuad high[2];
    // int8; [h]: of quads 4h .. 4h + 3.
    PairBytes scale[2];
  } groups[8];
};

static_assert(sizeof(PairQ4_0) == 576 && sizeof(PairQ4_1) == 640 && sizeof(PairQ8_0) == 1088);
static_assert(sizeof(PairQ4_K) == 4736 && sizeof(PairQ6_K) == 6720);

}  // namespace baton::kernels
