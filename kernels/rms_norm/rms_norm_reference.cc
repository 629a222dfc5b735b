#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rms_norm/rms_norm.h"

namespace baton::kernels {

void CheckArgs(const RmsNormArgs& args) {
  CHECK(args.y != nullptr);
  CHECK(args.tokens == 0 || (args.x != nullptr && args.weight != nullptr));
  CHECK_LT(0u, args.hidden);
  CHECK_LE(args.hidden, args.x_stride);
  CHECK(args.residual == nullptr || args.hidden <= args.residual_stride);
  CHECK_LT(0.0f, args.epsilon);
}

void RmsNormReference(const RmsNormArgs& args, KernelContext&) {
  CheckArgs(args);
  args.y->Reset(args.format, args.tokens, args.hidden);
  std::vector<float> normed(args.hidden);
  for (uint32_t token = 0; token < args.tokens; ++token) {
    const uint64_t row = args.row_indices != nullptr ? args.row_indices[token] : token;
    float* x = args.x + row * args.x_stride;
    if (args.residual != nullptr) {
      const float* residual = args.residual + row * args.residual_stride;
      for (uint32_t h = 0; h < args.hidden; ++h) x[h] += residual[h];
    }
    double sum_of_squares = 0.0;
    for (uint32_t h = 0; h < args.hidden; ++h) sum_of_squares += double{x[h]} * x[h];
    const auto scale =
        static_cast<float>(1.0 / std::sqrt(sum_of_squares / args.hidden + args.epsilon));
    for (uint32_t h = 0; h < args.hidden; ++h) normed[h] = x[h] * scale * args.weight[h];
    QuantizeRowReference(normed.data(), token, *args.y);
  }
}

}  // namespace baton::kernels
