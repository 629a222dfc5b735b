// How each format of matmul/panels.h is read, 32 columns x 32 elements at a time, as the tile of
// matmul_avx512.cc wants it:
//
//   Quad(i, panel)          quad i as unsigned bytes
//   Scale(half, panel)      f32 scale of each column; half = 0 unless kHalves
//   Min(panel)              f32 minimum of each column, if kMin
//   kFinalScale             exact power of two that the result of offset formats is multiplied by
//
// A reader is made for each group and lives in registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/matmul/panels.h"

namespace baton::kernels {

inline __m512i LoadQuad(const uint8_t* quad) { return _mm512_load_si512(quad); }

inline __m512 LoadHalves(const uint16_t* halves) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

inline __m512 LoadUnsigned(const uint8_t* bytes) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes))));
}

inline __m512 LoadSigned(const uint8_t* bytes) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes))));
}

// Quad i as 0..15 in the low bits of each byte.
inline __m512i LowNibbleQuad(const PairNibbles& q, int i, int panel) {
  const __m512i both = LoadQuad(q[i / 2][panel]);
  const __m512i shifted = i % 2 == 0 ? both : _mm512_srli_epi16(both, 4);
  return _mm512_and_si512(shifted, _mm512_set1_epi8(15));
}

struct ReaderQ4_1 {
  static constexpr bool kMin = true;
  static constexpr bool kHalves = false;
  static constexpr float kFinalScale = 1.0f;

  ReaderQ4_1(const uint8_t* pair, uint32_t group)
      : block(reinterpret_cast<const PairQ4_1*>(pair)[group]) {}
  __m512i Quad(int i, int panel) const { return LowNibbleQuad(block.q, i, panel); }
  __m512 Scale(int, int panel) const { return LoadHalves(block.scale[panel]); }
  __m512 Min(int panel) const { return LoadHalves(block.min[panel]); }

  const PairQ4_1& block;
};

struct ReaderQ4_0 {
  static constexpr bool kMin = false;
  static constexpr bool kHalves = false;
  static constexpr float kFinalScale = 1.0f / 16;

  ReaderQ4_0(const uint8_t* pair, uint32_t group)
      : block(reinterpret_cast<const PairQ4_0*>(pair)[group]) {}
  // 16 q = 16 (q - 8) + 128: the nibble stays in, or moves to, the high half of the byte.
  __m512i Quad(int i, int panel) const {
    const __m512i both = LoadQuad(block.q[i / 2][panel]);
    const __m512i shifted = i % 2 == 1 ? both : _mm512_slli_epi16(both, 4);
    return _mm512_and_si512(shifted, _mm512_set1_epi8(static_cast<char>(0xF0)));
  }
  __m512 Scale(int, int panel) const { return LoadHalves(block.scale[panel]); }

  const PairQ4_0& block;
};

struct ReaderQ8_0 {
  static constexpr bool kMin = false;
  static constexpr bool kHalves = false;
  static constexpr float kFinalScale = 1.0f;

  ReaderQ8_0(const uint8_t* pair, uint32_t group)
      : block(reinterpret_cast<const PairQ8_0*>(pair)[group]) {}
  __m512i Quad(int i, int panel) const { return LoadQuad(block.q[i][panel]); }
  __m512 Scale(int, int panel) const { return LoadHalves(block.scale[panel]); }

  const PairQ8_0& block;
};

struct ReaderQ4_K {
  static constexpr bool kMin = true;
  static constexpr bool kHalves = false;
  static constexpr float kFinalScale = 1.0f;

  ReaderQ4_K(const uint8_t* pair, uint32_t group)
      : block(reinterpret_cast<const PairQ4_K*>(pair)[group / 8]), group(block.groups[group % 8]) {}
  __m512i Quad(int i, int panel) const { return LowNibbleQuad(group.q, i, panel); }
  __m512 Scale(int, int panel) const {
    return _mm512_mul_ps(LoadHalves(block.d[panel]), LoadUnsigned(group.scale[panel]));
  }
  __m512 Min(int panel) const {
    const __m512 product =
        _mm512_mul_ps(LoadHalves(block.d_min[panel]), LoadUnsigned(group.min[panel]));
    return _mm512_sub_ps(_mm512_setzero_ps(), product);
  }

  const PairQ4_K& block;
  const PairQ4_K::Group& group;
};

struct ReaderQ6_K {
  static constexpr bool kMin = false;
  static constexpr bool kHalves = true;
  static constexpr float kFinalScale = 1.0f / 4;

  ReaderQ6_K(const uint8_t* pair, uint32_t group)
      : block(reinterpret_cast<const PairQ6_K*>(pair)[group / 8]), group(block.groups[group % 8]) {}
  // 4 q = 4 (q - 32) + 128: low bits at 2..5 of the byte, high bits at 6 and 7.
  __m512i Quad(int i, int panel) const {
    const __m512i both = LoadQuad(group.low[i / 2][panel]);
    const __m512i low = i % 2 == 0 ? _mm512_slli_epi16(both, 2) : _mm512_srli_epi16(both, 2);
    const __m512i high_bits = LoadQuad(group.high[i / 4][panel]);
    const __m512i high = i % 4 == 3 ? high_bits : _mm512_slli_epi16(high_bits, 6 - 2 * (i % 4));
    constexpr int kTakeSecondWhereMask = 0xCA;  // mask ? low : high
    const __m512i merged =
        _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x3C), low, high, kTakeSecondWhereMask);
    return _mm512_and_si512(merged, _mm512_set1_epi8(static_cast<char>(0xFC)));
  }
  __m512 Scale(int half, int panel) const {
    return _mm512_mul_ps(LoadHalves(block.d[panel]), LoadSigned(group.scale[half][panel]));
  }

  const PairQ6_K& block;
  const PairQ6_K::Group& group;
};

// A group of any format after Unpack(): what larger M amortises over its rows.
template <bool kWithHalves>
struct UnpackedGroup {
  PairQuad q[8];
  float scale[kWithHalves ? 2 : 1][2][kPanelColumns];
  float min[2][kPanelColumns];  // Not written if the format has none.
};

template <typename Packed>
struct ReaderUnpacked {
  static constexpr bool kMin = Packed::kMin;
  static constexpr bool kHalves = Packed::kHalves;
  static constexpr float kFinalScale = Packed::kFinalScale;
  using Group = UnpackedGroup<kHalves>;

  ReaderUnpacked(const uint8_t* pair, uint32_t group)
      : block(reinterpret_cast<const Group*>(pair)[group]) {}
  __m512i Quad(int i, int panel) const { return LoadQuad(block.q[i][panel]); }
  __m512 Scale(int half, int panel) const { return _mm512_load_ps(block.scale[half][panel]); }
  __m512 Min(int panel) const { return _mm512_load_ps(block.min[panel]); }

  static void Unpack(const uint8_t* pair, uint32_t group_count, uint8_t* out) {
    auto* groups = reinterpret_cast<Group*>(out);
    for (uint32_t g = 0; g < group_count; ++g) {
      const Packed from(pair, g);
      Group& to = groups[g];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {  // In the order in which they lie.
        _mm512_store_si512(to.q[i][0], from.Quad(i, 0));
        _mm512_store_si512(to.q[i][1], from.Quad(i, 1));
      }
      for (int panel = 0; panel < 2; ++panel) {
        for (int half = 0; half < (kHalves ? 2 : 1); ++half) {
          _mm512_store_ps(to.scale[half][panel], from.Scale(half, panel));
        }
        if constexpr (kMin) _mm512_store_ps(to.min[panel], from.Min(panel));
      }
    }
  }

  const Group& block;
};

}  // namespace baton::kernels
