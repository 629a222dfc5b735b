// Matmul on AVX-512 VNNI. A tile is 2 panels (32 columns) x 6 rows over all of K: 12 integer
// accumulators for the group at hand and 12 float accumulators for the groups before it. Threads
// take pairs of panels.
//
// Few rows: tiles read the packed weights directly. Many rows: a pair is unpacked into scratch
// once. The arithmetic and its order are the same.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/avx512_math.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/panel_formats_avx512.h"
#include "kernels/matmul/row_packing.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kDirectRowsMax = 12;

// How far ahead of a tile its weights are asked for when it is the only one on its pair.
constexpr uint64_t kPrefetchBytes = 8 << 10;

// Rows of activations that one pass over a pair takes, so that they stay in L2 next to the weights.
constexpr uint64_t kChunkBytesMax = 768 << 10;

// Where the results of one pair go: column c of panel p of row m to out[p][m * stride + c], if bit
// c of mask[p] is set.
struct PairOutput {
  float* out[2];
  const float* bias[2];  // Null: none.
  __mmask16 mask[2];
  uint64_t stride;
  Epilogue epilogue;
};

// Lines of memory to ask for while computing: `lines` from `next` on, spread over the groups of a
// tile.
struct Prefetch {
  const uint8_t* next = nullptr;
  uint32_t lines_per_group = 0;

  void Step() {
    for (uint32_t i = 0; i < lines_per_group; ++i, next += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
    }
  }
};

template <int kRows>
using Accumulators = __m512[kRows][2];

template <int kRows>
inline void Finish(const Accumulators<kRows>& acc, const PairOutput& to, uint32_t first_row) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const uint64_t offset = (first_row + r) * to.stride;
    __m512 y[2];
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      y[p] = acc[r][p];
      if (to.bias[p] != nullptr) {
        y[p] = _mm512_add_ps(y[p], _mm512_maskz_loadu_ps(to.mask[p], to.bias[p]));
      }
    }
    if (to.epilogue == Epilogue::kSwiGlu) {
      _mm512_mask_storeu_ps(to.out[0] + offset, to.mask[0], _mm512_mul_ps(Silu(y[0]), y[1]));
      continue;
    }
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      float* out = to.out[p] + offset;
      if (to.epilogue == Epilogue::kAdd) {
        y[p] = _mm512_add_ps(_mm512_maskz_loadu_ps(to.mask[p], out), y[p]);
      }
      _mm512_mask_storeu_ps(out, to.mask[p], y[p]);
    }
  }
}

// Adds quads [first, first + count) of a group to `sum`.
template <int kFirst, int kCount, typename Reader, int kRows>
inline void AddQuads(const Reader& w, const ActivationGroup& x, __m512i (&sum)[kRows][2]) {
#pragma GCC unroll 8
  for (int i = kFirst; i < kFirst + kCount; ++i) {
    const __m512i w0 = w.Quad(i, 0);
    const __m512i w1 = w.Quad(i, 1);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      int32_t quad;
      std::memcpy(&quad, x.q[i][r], sizeof(quad));
      const __m512i a = _mm512_set1_epi32(quad);
      sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, a);
      sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, a);
    }
  }
}

// The part of a group that shares one weight scale: all of it, or half `kHalf`.
template <typename Reader, int kHalf, int kRows>
inline void AddGroup(const Reader& w, const ActivationGroup& x, Accumulators<kRows>& acc) {
  __m512i sum[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    int32_t start = 0;
    if constexpr (!Reader::kMin) start = Reader::kHalves ? x.half_start[kHalf][r] : x.start[r];
    sum[r][0] = sum[r][1] = _mm512_set1_epi32(start);
  }
  AddQuads<4 * kHalf, Reader::kHalves ? 4 : 8>(w, x, sum);
#pragma GCC unroll 2
  for (int p = 0; p < 2; ++p) {
    const __m512 scale = w.Scale(kHalf, p);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[r]));
      acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][p]), factor, acc[r][p]);
    }
    if constexpr (Reader::kMin) {
      const __m512 min = w.Min(p);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        acc[r][p] = _mm512_fmadd_ps(min, _mm512_set1_ps(x.sum[r]), acc[r][p]);
      }
    }
  }
}

template <typename Reader, int kRows>
[[gnu::noinline]] void IntegerTile(const uint8_t* pair, const ActivationGroup* x,
                                   uint32_t group_count, Prefetch prefetch, const PairOutput& to,
                                   uint32_t first_row) {
  Accumulators<kRows> acc;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (uint32_t g = 0; g < group_count; ++g) {
    const Reader w(pair, g);
    prefetch.Step();
    AddGroup<Reader, 0>(w, x[g], acc);
    if constexpr (Reader::kHalves) AddGroup<Reader, 1>(w, x[g], acc);
  }
  if constexpr (Reader::kFinalScale != 1.0f) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        acc[r][p] = _mm512_mul_ps(acc[r][p], _mm512_set1_ps(Reader::kFinalScale));
      }
    }
  }
  Finish(acc, to, first_row);
}

struct ReaderF32 {
  static constexpr uint32_t kStride = kPairColumns * 4;
  static __m512 Load(const uint8_t* k, int panel) { return _mm512_load_ps(k + panel * 64); }
};

struct ReaderF16 {
  static constexpr uint32_t kStride = kPairColumns * 2;
  static __m512 Load(const uint8_t* k, int panel) {
    return LoadHalves(reinterpret_cast<const uint16_t*>(k) + panel * kPanelColumns);
  }
};

struct ReaderBf16 {
  static constexpr uint32_t kStride = kPairColumns * 2;
  static __m512 Load(const uint8_t* k, int panel) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(k) + panel);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
};

template <typename Reader, int kRows>
[[gnu::noinline]] void FloatTile(const uint8_t* pair, const float* x, uint32_t columns,
                                 const PairOutput& to, uint32_t first_row) {
  constexpr uint32_t kRun = 64;
  Accumulators<kRows> acc;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (uint32_t begin = 0; begin < columns; begin += kRun) {
    Accumulators<kRows> run;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) run[r][0] = run[r][1] = _mm512_setzero_ps();
    const uint32_t end = std::min(columns, begin + kRun);
    for (uint32_t k = begin; k < end; ++k, pair += Reader::kStride, x += kRowBlock) {
      const __m512 w0 = Reader::Load(pair, 0);
      const __m512 w1 = Reader::Load(pair, 1);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m512 a = _mm512_set1_ps(x[r]);
        run[r][0] = _mm512_fmadd_ps(w0, a, run[r][0]);
        run[r][1] = _mm512_fmadd_ps(w1, a, run[r][1]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      acc[r][0] = _mm512_add_ps(acc[r][0], run[r][0]);
      acc[r][1] = _mm512_add_ps(acc[r][1], run[r][1]);
    }
  }
  Finish(acc, to, first_row);
}

// One pair of panels and the rows it is to be multiplied with.
struct PairTask {
  const uint8_t* pair;
  uint64_t pair_bytes;
  bool last_pair;  // Nothing to prefetch behind it.
  const Activations* x;
  uint32_t first_block;
  uint32_t end_block;
  PairOutput to;
};

// Calls tile<kRows>(block) for each row block of the task.
template <typename Tile>
void ForEachBlock(const PairTask& task, Tile tile) {
  for (uint32_t block = task.first_block; block < task.end_block; ++block) {
    switch (std::min(kRowBlock, task.x->rows() - block * kRowBlock)) {
      case 1:
        tile.template operator()<1>(block);
        break;
      case 2:
        tile.template operator()<2>(block);
        break;
      case 3:
        tile.template operator()<3>(block);
        break;
      case 4:
        tile.template operator()<4>(block);
        break;
      case 5:
        tile.template operator()<5>(block);
        break;
      default:
        tile.template operator()<6>(block);
        break;
    }
  }
}

template <typename Reader>
void IntegerBlocks(const uint8_t* pair, Prefetch prefetch, const PairTask& task) {
  const uint32_t groups = task.x->columns() / kGroupElements;
  ForEachBlock(task, [&]<int kRows>(uint32_t block) {
    IntegerTile<Reader, kRows>(pair, task.x->Groups(block), groups, prefetch, task.to,
                               block * kRowBlock);
    prefetch.next += uint64_t{prefetch.lines_per_group} * groups * 64;
  });
}

// One row reads as fast as the hardware prefetches; asking for more only disturbs it. A tile of a
// few rows computes longer than that looks ahead. With several tiles on a pair, the next pair is
// fetched evenly while they run.
Prefetch PrefetchFor(const PairTask& task, uint32_t groups) {
  const uint32_t blocks = task.end_block - task.first_block;
  if (task.last_pair || task.x->rows() == 1) return {};
  const uint64_t steps = uint64_t{blocks} * groups;
  return {.next = task.pair + (blocks == 1 ? kPrefetchBytes : task.pair_bytes),
          .lines_per_group = static_cast<uint32_t>((task.pair_bytes / 64 + steps - 1) / steps)};
}

template <typename Reader>
void IntegerPair(const PairTask& task, KernelContext& context, uint32_t thread) {
  const uint32_t groups = task.x->columns() / kGroupElements;
  const Prefetch prefetch = PrefetchFor(task, groups);
  if ((task.end_block - task.first_block) * kRowBlock <= kDirectRowsMax) {
    IntegerBlocks<Reader>(task.pair, prefetch, task);
    return;
  }
  using Unpacked = ReaderUnpacked<Reader>;
  uint8_t* scratch = context.Scratch(thread, groups * sizeof(typename Unpacked::Group));
  Unpacked::Unpack(task.pair, groups, scratch);
  IntegerBlocks<Unpacked>(scratch, prefetch, task);
}

template <typename Reader>
void FloatPair(const PairTask& task) {
  ForEachBlock(task, [&]<int kRows>(uint32_t block) {
    FloatTile<Reader, kRows>(task.pair, task.x->Floats(block), task.x->columns(), task.to,
                             block * kRowBlock);
  });
}

void ComputePair(TensorType type, const PairTask& task, KernelContext& context, uint32_t thread) {
  switch (type) {
    case TensorType::kF32:
      return FloatPair<ReaderF32>(task);
    case TensorType::kF16:
      return FloatPair<ReaderF16>(task);
    case TensorType::kBf16:
      return FloatPair<ReaderBf16>(task);
    case TensorType::kQ4_0:
      return IntegerPair<ReaderQ4_0>(task, context, thread);
    case TensorType::kQ4_1:
      return IntegerPair<ReaderQ4_1>(task, context, thread);
    case TensorType::kQ8_0:
      return IntegerPair<ReaderQ8_0>(task, context, thread);
    case TensorType::kQ4_K:
      return IntegerPair<ReaderQ4_K>(task, context, thread);
    case TensorType::kQ6_K:
      return IntegerPair<ReaderQ6_K>(task, context, thread);
  }
}

// The lanes of 16 columns from `first` on that lie below `count`.
__mmask16 LanesBelow(uint32_t first, uint32_t count) {
  if (first >= count) return 0;
  return count - first >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (count - first)) - 1);
}

PairOutput OutputOf(const MatmulArgs& args, const PackedMatrix::Part& part, uint32_t pair) {
  PairOutput to = {};
  to.stride = args.out_stride;
  to.epilogue = args.epilogue;
  const bool gate_up = args.epilogue == Epilogue::kSwiGlu;
  const uint32_t results = gate_up ? part.rows / 2 : part.rows;
  for (uint32_t panel = 0; panel < 2; ++panel) {
    const uint32_t column = gate_up ? pair * kPanelColumns : (2 * pair + panel) * kPanelColumns;
    const uint32_t weight_row = gate_up ? panel * results + column : column;
    to.mask[panel] = LanesBelow(column, results);
    to.out[panel] = args.out + part.first_row + column;
    to.bias[panel] = args.bias != nullptr ? args.bias + part.first_row + weight_row : nullptr;
  }
  return to;
}

// Row blocks that one pass takes.
uint32_t BlocksPerChunk(const Activations& x) {
  const uint64_t element_bytes =
      x.format() == ActivationFormat::kF32 ? sizeof(float) : 2;  // 312 bytes hold 192 elements.
  const uint64_t block_bytes = uint64_t{x.columns()} * kRowBlock * element_bytes;
  const auto blocks = static_cast<uint32_t>(
      std::max<uint64_t>(kChunkBytesMax / block_bytes, kDirectRowsMax / kRowBlock));
  // Chunks of equal size: a last one of a few rows would unpack all the weights for little.
  const uint32_t chunks = (x.block_count() + blocks - 1) / blocks;
  return (x.block_count() + chunks - 1) / chunks;
}

}  // namespace

void MatmulAvx512(const MatmulArgs& args, KernelContext& context) {
  CheckArgs(args, PackedLayout::kPanels);
  const Activations& x = *args.x;
  if (x.rows() == 0) return;
  const uint32_t chunk_blocks = BlocksPerChunk(x);
  const uint32_t chunks = (x.block_count() + chunk_blocks - 1) / chunk_blocks;
  uint32_t pairs = 0;
  for (const PackedMatrix::Part& part : args.weights->parts()) {
    pairs += PairCountOf(args.weights->order(), part.rows);
  }

  context.ForEachTile(chunks * pairs, [&](uint32_t tile, uint32_t thread) {
    const uint32_t chunk = tile / pairs;
    uint32_t pair = tile % pairs;
    const PackedMatrix::Part* part = args.weights->parts().data();
    uint32_t part_pairs = PairCountOf(args.weights->order(), part->rows);
    while (pair >= part_pairs) {
      pair -= part_pairs;
      ++part;
      part_pairs = PairCountOf(args.weights->order(), part->rows);
    }
    const uint64_t pair_bytes = PairBytesOf(part->type, x.columns());
    ComputePair(part->type,
                {.pair = part->data + pair * pair_bytes,
                 .pair_bytes = pair_bytes,
                 .last_pair = pair + 1 == part_pairs,
                 .x = &x,
                 .first_block = chunk * chunk_blocks,
                 .end_block = std::min(x.block_count(), (chunk + 1) * chunk_blocks),
                 .to = OutputOf(args, *part, pair)},
                context, thread);
  });
}

}  // namespace baton::kernels
