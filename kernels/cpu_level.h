// Which code the CPU ops run. Chosen once at start; a level this CPU lacks is refused by name.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::kernels {

enum class CpuLevel {
  kReference,     // Portable C++, the definition of every op.
  kAvx2,          // AVX2 + FMA + F16C. Ops without such code run the reference, named at start.
  kAvx512NoBf16,  // AVX-512 F, BW, VL, DQ and VNNI.
  kAvx512,        // The same and AVX512_BF16.
};

absl::string_view CpuLevelName(CpuLevel level);  // "reference", "avx2", "avx512-nobf16", "avx512"
// "auto" gives BestCpuLevel(). INVALID_ARGUMENT lists the legal names.
absl::StatusOr<CpuLevel> ParseCpuLevel(absl::string_view name);
bool Supported(CpuLevel level);  // By this machine, operating system included.
// The fastest level that is supported. On Intel that is avx512-nobf16: vdpbf16ps has half the rate
// of f32 FMAs there (87 against 176 GFLOP/s a core of Emerald Rapids), on AMD's Zen 4 twice; f32 is
// the more accurate in any case.
CpuLevel BestCpuLevel();

}  // namespace baton::kernels
