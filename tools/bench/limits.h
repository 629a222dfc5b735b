// What this machine can do at most, measured now: multiply-adds a second in registers, and bytes a second of a
// sequential read. Speeds are compared with these, taken in the same run.
#pragma once

#include <cstddef>

namespace baton::bench {

// A multiply and an add count as two; 0 on a CPU without AVX-512 VNNI.
double Int8Gops(int threads);
// The same of f32 (AVX-512 F) and of bf16 with sums in f32 (AVX512_BF16), which is twice or half as fast by CPU.
double F32Gflops(int threads);
double Bf16Gflops(int threads);

// `megabytes` in huge pages, read from front to back by all threads, each its own range.
double ReadGigabytesPerSecond(int threads, size_t megabytes);

// Seconds since some fixed moment.
double NowSeconds();

}  // namespace baton::bench
