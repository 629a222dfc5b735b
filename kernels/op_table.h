// Every op that a model may call: one row each, one column per CPU level.
//
//   op            reference            avx2                 avx512-nobf16      avx512
//   embed         Embed (portable)     Embed                Embed              Embed
//   rms_norm      RmsNormReference     -                    RmsNormAvx512      RmsNormAvx512
//   quantize      QuantizeReference    -                    QuantizeAvx512     QuantizeAvx512
//   matmul        MatmulReference      -                    MatmulAvx512       MatmulAvx512
//   rope_append   RopeAppendReference  -                    RopeAppendAvx512   RopeAppendAvx512
//   attention     AttentionReference   -                    AttentionAvx512NoBf16, AttentionAvx512
//
// rms_norm exists as CUDA source too (RmsNormCuda, no level of a CPU), which keeps the contracts
// such that a GPU can honour them.
//
// "-" is a level without code of its own: Bind() then takes the reference and names the op in
// BoundOps::fallbacks, which the start-up log prints. A new op is: a folder with its contract, a
// row here, a case in the conformance tests.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu_level.h"
#include "kernels/embed/embed.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_append/rope_append.h"

namespace baton::kernels {

// The ops of one level, chosen once at start; a model keeps a copy.
struct BoundOps {
  CpuLevel level = CpuLevel::kReference;
  PackedLayout layout = PackedLayout::kRows;  // What matmul's weights must be packed in.
  std::vector<std::string> fallbacks;         // Ops that run the reference at a level above it.

  EmbedFn embed = nullptr;
  RmsNormFn rms_norm = nullptr;
  QuantizeFn quantize = nullptr;
  MatmulFn matmul = nullptr;
  RopeAppendFn rope_append = nullptr;
  AttentionFn attention = nullptr;
};

// UNIMPLEMENTED, naming the level, if this CPU or operating system lacks it.
absl::StatusOr<BoundOps> Bind(CpuLevel level);

}  // namespace baton::kernels
