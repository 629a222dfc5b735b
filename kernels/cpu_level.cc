#include "kernels/cpu_level.h"

#include <cpuid.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace baton::kernels {
namespace {

constexpr CpuLevel kLevels[] = {CpuLevel::kAvx512, CpuLevel::kAvx512NoBf16, CpuLevel::kAvx2,
                                CpuLevel::kReference};  // Best first.

// clang 14's __builtin_cpu_supports does not know the name. F16C uses AVX's registers: whoever asks
// for AVX2 too has asked the operating system about them.
bool CpuHasF16c() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

absl::string_view CpuLevelName(CpuLevel level) {
  switch (level) {
    case CpuLevel::kReference:
      return "reference";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvx512NoBf16:
      return "avx512-nobf16";
    case CpuLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

absl::StatusOr<CpuLevel> ParseCpuLevel(absl::string_view name) {
  if (name == "auto") return BestCpuLevel();
  for (CpuLevel level : kLevels) {
    if (name == CpuLevelName(level)) return level;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "CPU level is \"", name, "\", must be auto, reference, avx2, avx512-nobf16 or avx512"));
}

// __builtin_cpu_supports also asks the operating system (XGETBV) whether it saves the registers.
bool Supported(CpuLevel level) {
  switch (level) {
    case CpuLevel::kReference:
      return true;
    case CpuLevel::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && CpuHasF16c();
    case CpuLevel::kAvx512NoBf16:
      return Supported(CpuLevel::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
    case CpuLevel::kAvx512:
      return Supported(CpuLevel::kAvx512NoBf16) && __builtin_cpu_supports("avx512bf16");
  }
  return false;
}

CpuLevel BestCpuLevel() {
  // By maker, not by a measurement: all workers of a kind of machine must come to the same level.
  const bool slow_bf16 = !__builtin_cpu_is("amd");
  for (CpuLevel level : kLevels) {
    if (level == CpuLevel::kAvx512 && slow_bf16) continue;
    if (Supported(level)) return level;
  }
  return CpuLevel::kReference;
}

}  // namespace baton::kernels
