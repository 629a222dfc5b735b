// What this machine can do at most, measured now: int8 multiply-adds a second in registers, and bytes a second of a
// sequential read. Speeds are compared with these, taken in the same run. Prints one JSON object:
//
//   {"threads": 2, "int8_gops": 900.1, "read_gbs": 40.2, "read_megabytes": 96}
//
// int8_gops counts a multiply and an add as two; 0 on a CPU without AVX-512 VNNI.

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr int kRepeats = 9;

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

// 24 independent chains, so that neither latency nor loads limit them; in assembly, since GCC 12 adds register moves.
__attribute__((target("avx512f,avx512vnni"), noinline)) int MultiplyAdd(int64_t rounds) {
  constexpr int kChains = 24;
  __m512i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) {
      asm volatile("vpdpbusd %2, %1, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
    }
  }
  __m512i total = sums[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_epi32(total, sums[i]);
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(total));
}

double Int8Gops(int threads) {
  if (!__builtin_cpu_supports("avx512vnni")) return 0;
  constexpr int64_t kRounds = 2'000'000;
  std::atomic<int> sink{0};
  const double seconds = BestSeconds(threads, [&](int) { sink += MultiplyAdd(kRounds); });
  return 24.0 * 64 * 2 * static_cast<double>(kRounds) * threads / seconds / 1e9;
}

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

}  // namespace

int main(int argc, char** argv) {
  const size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 96;
  if (megabytes < 2 || megabytes > 4096) {
    std::fprintf(stderr, "usage: machine_limits [MEGABYTES], MEGABYTES in [2, 4096]\n");
    return 2;
  }
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("{\"threads\": %d, \"int8_gops\": %.1f, \"read_gbs\": %.1f, \"read_megabytes\": %zu}\n", threads,
              Int8Gops(threads), ReadGigabytesPerSecond(threads, megabytes / 2 * 2), megabytes);
  return 0;
}
