#include "kernels/attention/attention_kernel.h"

namespace baton::kernels {

void AttentionAvx512NoBf16(const AttentionArgs& args, KernelContext& context) {
  RunAttention(args, AttentionKernelAvx512(args.kv.layout.type), context);
}

void AttentionAvx512(const AttentionArgs& args, KernelContext& context) {
  const bool bf16 = args.kv.layout.type == KvType::kBf16;
  RunAttention(args, bf16 ? AttentionKernelAvx512Bf16() : AttentionKernelAvx512(args.kv.layout.type), context);
}

}  // namespace baton::kernels
