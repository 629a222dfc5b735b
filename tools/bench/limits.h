// What this machine can do at most, measured now: int8 multiply-adds a second in registers, and bytes a second of a
// sequential read. Speeds are compared with these, taken in the same run.
#pragma once

#include <cstddef>

namespace baton::bench {

// A multiply and an add count as two; 0 on a CPU without AVX-512 VNNI.
double Int8Gops(int threads);

// `megabytes` in huge pages, read from front to back by all threads, each its own range.
double ReadGigabytesPerSecond(int threads, size_t megabytes);

// Seconds since some fixed moment.
double NowSeconds();

}  // namespace baton::bench
