// Speed of attention over paged KV beside what the machine can do (measured in the same run):
//
//   attention_bench [THREADS]
//
// Prefill is one prompt; decode is a batch of rows, each with a context of its own, layer after layer, so that KV comes from
// memory as it does in a step. Peaks are of the arithmetic that the level uses for the KV type.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/op_table.h"
#include "tools/bench/limits.h"

namespace baton::bench {
namespace {

using kernels::CpuLevel;
using kernels::KvType;

constexpr uint32_t kBlockTokens = 16;

struct Model {
  const char* name;
  uint32_t heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t layers;
};

constexpr Model kModels[] = {{"SmolLM2-135M", 9, 3, 64, 30}, {"head_dim 128", 16, 4, 128, 8}};

struct Limits {
  double f32_gflops;
  double bf16_gflops;
  double read_gbs;
};

struct Case {
  const char* name;
  uint32_t sequences;
  uint32_t start;
  uint32_t rows;
};

constexpr Case kCases[] = {{"prefill 512", 1, 0, 512},     {"prefill 2048", 1, 0, 2048},
                           {"prefill 8192", 1, 7680, 512}, {"decode 1 x 128", 1, 127, 1},
                           {"decode 1 x 2048", 1, 2047, 1}, {"decode 32 x 128", 32, 127, 1},
                           {"decode 32 x 512", 32, 511, 1}};

class Bench {
 public:
  Bench(const Model& model, CpuLevel level, KvType type, const Case& c, uint32_t threads)
      : model_(model), case_(c), context_(threads), attention_(kernels::Bind(level)->attention) {
    const uint32_t blocks_each = (c.start + c.rows + kBlockTokens - 1) / kBlockTokens;
    const kernels::KvLayout layout = {.layers = model.layers,
                                      .kv_heads = model.kv_heads,
                                      .head_dim = model.head_dim,
                                      .block_tokens = kBlockTokens,
                                      .type = type};
    kv_ = {.layout = layout, .block_count = blocks_each * c.sequences, .base = nullptr};
    arena_ = kernels::Buffer(layout.block_bytes() * kv_.block_count);
    // Ones and twos, small enough in every type.
    for (size_t i = 0; i < arena_.size(); ++i) arena_.data()[i] = i % 2 == 0 ? i / 2 % 7 : 0x3c;
    kv_.base = arena_.data();
    for (uint32_t i = 0; i < kv_.block_count; ++i) blocks_.push_back(i);
    for (uint32_t s = 0; s < c.sequences; ++s) {
      sequences_.push_back({.blocks = absl::MakeConstSpan(blocks_).subspan(s * blocks_each, blocks_each),
                            .start_position = c.start,
                            .row_count = c.rows});
    }
    const size_t elements = size_t{c.sequences} * c.rows * width();
    q_.resize(elements);
    for (size_t i = 0; i < elements; ++i) q_[i] = static_cast<float>(i % 13) * 0.1f - 0.6f;
    out_.resize(elements);
  }

  // Seconds of one layer, median over about a quarter of a second.
  double Seconds() {
    std::vector<double> seconds;
    const double end = NowSeconds() + 0.25;
    for (uint32_t i = 0; seconds.size() < 9 || NowSeconds() < end; ++i) {
      const double start = NowSeconds();
      attention_({.q = q_.data(),
                  .q_stride = width(),
                  .out = out_.data(),
                  .out_stride = width(),
                  .heads = model_.heads,
                  .scale = 1.0f / std::sqrt(static_cast<float>(model_.head_dim)),
                  .sequences = sequences_,
                  .kv = kv_,
                  .layer = i % model_.layers},
                 context_);
      seconds.push_back(NowSeconds() - start);
    }
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }

  double Flops() const {
    double keys = 0;
    for (uint32_t i = 0; i < case_.rows; ++i) keys += case_.start + i + 1;
    return 4.0 * keys * case_.sequences * model_.head_dim * model_.heads;
  }
  double KvBytes() const {
    return static_cast<double>(kv_.layout.layer_block_bytes()) / kBlockTokens * (case_.start + case_.rows) *
           case_.sequences;
  }

 private:
  uint32_t width() const { return model_.heads * model_.head_dim; }

  Model model_;
  Case case_;
  kernels::KernelContext context_;
  kernels::AttentionFn attention_;
  kernels::Buffer arena_;
  kernels::PagedKvView kv_;
  std::vector<uint32_t> blocks_;
  std::vector<kernels::SequenceRows> sequences_;
  std::vector<float> q_;
  std::vector<float> out_;
};

void Run(const Model& model, CpuLevel level, KvType type, uint32_t threads, const Limits& limits) {
  const bool bf16 = level == CpuLevel::kAvx512 && type == KvType::kBf16;
  const double peak = bf16 ? limits.bf16_gflops : limits.f32_gflops;
  for (const Case& c : kCases) {
    Bench bench(model, level, type, c, threads);
    const double seconds = bench.Seconds();
    const double gflops = bench.Flops() / seconds / 1e9;
    const double gbs = bench.KvBytes() / seconds / 1e9;
    std::printf("%-12s %-13s KV %s  %-15s %9.1f us a layer  %6.1f GFLOP/s (%3.0f %% of %s peak)", model.name,
                std::string(kernels::CpuLevelName(level)).c_str(),
                type == KvType::kF32 ? "f32 " : type == KvType::kF16 ? "f16 " : "bf16", c.name, seconds * 1e6, gflops,
                100 * gflops / peak, bf16 ? "bf16" : "f32");
    if (c.rows == 1) std::printf("  %5.1f GB/s (%3.0f %% of a stream read)", gbs, 100 * gbs / limits.read_gbs);
    std::printf("\n");
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  const uint32_t threads = argc > 1 ? std::atoi(argv[1]) : std::thread::hardware_concurrency();
  CHECK(threads >= 1 && threads <= kernels::ThreadPool::kThreadsMax) << "THREADS is " << threads;
  const int count = static_cast<int>(threads);
  const Limits limits = {.f32_gflops = F32Gflops(count),
                         .bf16_gflops = Bf16Gflops(count),
                         .read_gbs = ReadGigabytesPerSecond(count, 96)};
  std::printf("%u threads: f32 peak %.0f GFLOP/s, bf16 peak %.0f GFLOP/s, stream read %.1f GB/s\n", threads,
              limits.f32_gflops, limits.bf16_gflops, limits.read_gbs);
  for (const Model& model : kModels) {
    for (const auto& [level, type] : {std::pair{CpuLevel::kAvx512NoBf16, KvType::kBf16},
                                      {CpuLevel::kAvx512NoBf16, KvType::kF16},
                                      {CpuLevel::kAvx512NoBf16, KvType::kF32},
                                      {CpuLevel::kAvx512, KvType::kBf16}}) {
      if (kernels::Supported(level)) Run(model, level, type, threads, limits);
    }
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
