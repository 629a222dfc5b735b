// What this machine can do at most, measured now: int8 multiply-adds a second in registers, and bytes a second of a
// sequential read. Speeds are compared with these, taken in the same run. Prints one JSON object:
//
//   {"threads": 2, "int8_gops": 900.1, "read_gbs": 40.2, "read_megabytes": 96}
//
// int8_gops counts a multiply and an add as two; 0 on a CPU without AVX-512 VNNI.

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tools/bench/limits.h"

int main(int argc, char** argv) {
  const size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 96;
  if (megabytes < 2 || megabytes > 4096) {
    std::fprintf(stderr, "usage: machine_limits [MEGABYTES], MEGABYTES in [2, 4096]\n");
    return 2;
  }
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("{\"threads\": %d, \"int8_gops\": %.1f, \"read_gbs\": %.1f, \"read_megabytes\": %zu}\n", threads,
              baton::bench::Int8Gops(threads), baton::bench::ReadGigabytesPerSecond(threads, megabytes / 2 * 2), megabytes);
  return 0;
}
