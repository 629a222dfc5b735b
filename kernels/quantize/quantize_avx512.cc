#include "kernels/quantize/quantize.h"
#include "kernels/quantize/quantize_block_avx512.h"

namespace baton::kernels {

void QuantizeAvx512(const QuantizeArgs& args, KernelContext& context) {
  CheckArgs(args);
  args.y->Reset(args.format, args.rows, args.columns);
  context.ForEachTile(args.y->block_count(), [&](uint32_t block, uint32_t) {
    const float* rows[kRowBlock];
    // Rows past the end repeat the last: what becomes of them is not read.
    for (uint32_t r = 0; r < kRowBlock; ++r) {
      rows[r] = args.x + std::min(block * kRowBlock + r, args.rows - 1) * args.x_stride;
    }
    const auto load = [&](uint32_t r, uint32_t k) {
      return _mm512_maskz_loadu_ps(RowMask(k, args.columns), rows[r] + k);
    };
    QuantizeBlock(load, block, *args.y);
  });
}

}  // namespace baton::kernels
