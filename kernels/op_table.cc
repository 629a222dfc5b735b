#include "kernels/op_table.h"

#include "absl/strings/str_cat.h"

namespace baton::kernels {
namespace {

// nullptr: the level has no code of its own for the op.
template <typename Fn>
struct OpRow {
  const char* name;
  Fn reference;
  Fn avx2;
  Fn avx512_no_bf16;
  Fn avx512;

  Fn At(CpuLevel level) const {
    switch (level) {
      case CpuLevel::kReference:
        return reference;
      case CpuLevel::kAvx2:
        return avx2;
      case CpuLevel::kAvx512NoBf16:
        return avx512_no_bf16;
      case CpuLevel::kAvx512:
        return avx512;
    }
    return nullptr;
  }
};

constexpr OpRow<EmbedFn> kEmbed = {"embed", Embed, Embed, Embed, Embed};
constexpr OpRow<RmsNormFn> kRmsNorm = {"rms_norm", RmsNormReference, nullptr, RmsNormAvx512,
                                       RmsNormAvx512};
constexpr OpRow<QuantizeFn> kQuantize = {"quantize", QuantizeReference, nullptr, QuantizeAvx512,
                                         QuantizeAvx512};
constexpr OpRow<MatmulFn> kMatmul = {"matmul", MatmulReference, nullptr, MatmulAvx512,
                                     MatmulAvx512};
constexpr OpRow<RopeAppendFn> kRopeAppend = {"rope_append", RopeAppendReference, nullptr,
                                             RopeAppendAvx512, RopeAppendAvx512};
constexpr OpRow<AttentionFn> kAttention = {"attention", AttentionReference, nullptr,
                                           AttentionAvx512NoBf16, AttentionAvx512};

template <typename Fn>
Fn Choose(const OpRow<Fn>& row, BoundOps& ops) {
  if (Fn fn = row.At(ops.level); fn != nullptr) return fn;
  ops.fallbacks.push_back(row.name);
  return row.reference;
}

}  // namespace

absl::StatusOr<BoundOps> Bind(CpuLevel level) {
  if (!Supported(level)) {
    return absl::UnimplementedError(
        absl::StrCat("this machine lacks CPU level ", std::string(CpuLevelName(level)),
                     "; the best it has is ", std::string(CpuLevelName(BestCpuLevel()))));
  }
  BoundOps ops;
  ops.level = level;
  ops.layout = PackedLayoutOf(level);
  ops.embed = Choose(kEmbed, ops);
  ops.rms_norm = Choose(kRmsNorm, ops);
  ops.quantize = Choose(kQuantize, ops);
  ops.matmul = Choose(kMatmul, ops);
  ops.rope_append = Choose(kRopeAppend, ops);
  ops.attention = Choose(kAttention, ops);
  return ops;
}

}  // namespace baton::kernels
