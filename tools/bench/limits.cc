#include "tools/bench/limits.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace baton::bench {
namespace {

constexpr int kRepeats = 9;

// Seconds that body(thread) takes on all threads, started together; the best of kRepeats.
double BestSeconds(int threads, const std::function<void(int)>& body) {
  double best = 1e9;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::atomic<int> waiting{threads};
    std::vector<std::thread> pool;
    std::atomic<double> start{0};
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([&, t] {
        if (waiting.fetch_sub(1) == 1) start = NowSeconds();
        while (waiting.load() > 0) std::this_thread::yield();
        body(t);
      });
    }
    for (std::thread& thread : pool) thread.join();
    best = std::min(best, NowSeconds() - start.load());
  }
  return best;
}

// 12 independent chains hide the latency. In assembly, since the compiler would keep the sums in memory or add moves;
// the sums' values do not matter.
#define BATON_12_CHAINS(instruction)                                                              \
  asm volatile(instruction " %%zmm0, %%zmm1, %%zmm2\n\t" instruction " %%zmm0, %%zmm1, %%zmm3\n\t"  \
               instruction " %%zmm0, %%zmm1, %%zmm4\n\t" instruction " %%zmm0, %%zmm1, %%zmm5\n\t"  \
               instruction " %%zmm0, %%zmm1, %%zmm6\n\t" instruction " %%zmm0, %%zmm1, %%zmm7\n\t"  \
               instruction " %%zmm0, %%zmm1, %%zmm8\n\t" instruction " %%zmm0, %%zmm1, %%zmm9\n\t"  \
               instruction " %%zmm0, %%zmm1, %%zmm10\n\t" instruction " %%zmm0, %%zmm1, %%zmm11\n\t" \
               instruction " %%zmm0, %%zmm1, %%zmm12\n\t" instruction " %%zmm0, %%zmm1, %%zmm13\n\t" \
               :::"xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
               "xmm12", "xmm13")

constexpr int64_t kRounds = 4'000'000;

void MultiplyAddInt8(int) {
  for (int64_t round = 0; round < kRounds; ++round) BATON_12_CHAINS("vpdpbusd");
}

// Operands are zeroed, so that no denormal slows them down.
void MultiplyAddF32(int) {
  asm volatile("vpxord %%zmm0, %%zmm0, %%zmm0\n\tvpxord %%zmm1, %%zmm1, %%zmm1" ::: "xmm0", "xmm1");
  for (int64_t round = 0; round < kRounds; ++round) BATON_12_CHAINS("vfmadd231ps");
}

void MultiplyAddBf16(int) {
  asm volatile("vpxord %%zmm0, %%zmm0, %%zmm0\n\tvpxord %%zmm1, %%zmm1, %%zmm1" ::: "xmm0", "xmm1");
  for (int64_t round = 0; round < kRounds; ++round) BATON_12_CHAINS("vdpbf16ps");
}

double Gops(int threads, int operations, void (*body)(int)) {
  const double seconds = BestSeconds(threads, body);
  return 12.0 * operations * static_cast<double>(kRounds) * threads / seconds / 1e9;
}

}  // namespace

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Int8Gops(int threads) {
  return __builtin_cpu_supports("avx512vnni") ? Gops(threads, 2 * 64, MultiplyAddInt8) : 0;
}

double F32Gflops(int threads) {
  return __builtin_cpu_supports("avx512f") ? Gops(threads, 2 * 16, MultiplyAddF32) : 0;
}

double Bf16Gflops(int threads) {
  return __builtin_cpu_supports("avx512bf16") ? Gops(threads, 2 * 32, MultiplyAddBf16) : 0;
}

namespace {

__attribute__((target("avx512f"), noinline)) uint64_t ReadSum512(const uint8_t* data, size_t bytes) {
  __m512i sums[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(data + i + 64 * j));
    }
  }
  const __m512i sum = _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]),
                                       _mm512_xor_si512(sums[2], sums[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
}

uint64_t ReadSum(const uint8_t* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    for (int j = 0; j < 8; ++j) {
      uint64_t word;
      std::memcpy(&word, data + i + 8 * j, 8);
      sums[j] ^= word;
    }
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum ^= part;
  return sum;
}

}  // namespace

double ReadGigabytesPerSecond(int threads, size_t megabytes) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t bytes = megabytes << 20;
  auto* data = static_cast<uint8_t*>(std::aligned_alloc(kHugePage, bytes));
  if (data == nullptr) return 0;
  madvise(data, bytes, MADV_HUGEPAGE);
  std::memset(data, 1, bytes);
  const bool wide = __builtin_cpu_supports("avx512f");
  const size_t share = bytes / threads / 4096 * 4096;
  std::atomic<uint64_t> sink{0};
  const double seconds = BestSeconds(threads, [&](int t) {
    const uint8_t* begin = data + share * t;
    sink += wide ? ReadSum512(begin, share) : ReadSum(begin, share);
  });
  std::free(data);
  return static_cast<double>(share) * threads / seconds / 1e9;
}

}  // namespace baton::bench
