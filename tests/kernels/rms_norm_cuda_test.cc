// The CUDA source of rms_norm against the reference. Built where the toolkit is, skipped in sight
// where no GPU is.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda_memory.h"
#include "kernels/rms_norm/rms_norm.h"

namespace baton::kernels {
namespace {

// Floats in pages of their own that the device sees.
class SharedFloats {
 public:
  SharedFloats(size_t count, uint32_t seed)
      : buffer_(count * sizeof(float)), visible_(buffer_.data(), buffer_.size()) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) data()[i] = normal(random);
  }
  float* data() { return buffer_.as<float>(); }

 private:
  Buffer buffer_;
  CudaVisible visible_;
};

class RmsNormCudaTest : public testing::TestWithParam<ActivationFormat> {
 protected:
  void SetUp() override {
    if (!CudaDevicePresent()) GTEST_SKIP() << "there is no CUDA device";
  }
};

TEST_P(RmsNormCudaTest, AgreesWithTheReference) {
  constexpr uint32_t kTokens = 9, kHidden = 576;
  KernelContext context(1);
  SharedFloats x(kTokens * kHidden, 1), residual(kTokens * kHidden, 2), weight(kHidden, 3);
  std::vector<float> x_want(x.data(), x.data() + kTokens * kHidden);
  Activations want(kTokens, kHidden), got(kTokens, kHidden);
  const CudaVisible rows(got.Groups(0), got.bytes());
  RmsNormArgs args = {.x = x_want.data(),
                      .x_stride = kHidden,
                      .residual = residual.data(),
                      .residual_stride = kHidden,
                      .weight = weight.data(),
                      .tokens = kTokens,
                      .hidden = kHidden,
                      .epsilon = 1e-5f,
                      .format = GetParam(),
                      .y = &want};
  RmsNormReference(args, context);
  args.x = x.data();
  args.y = &got;
  RmsNormCuda(args, context);
  CudaSynchronize();

  for (uint32_t token = 0; token < kTokens; ++token) {
    const uint32_t block = token / kRowBlock, lane = token % kRowBlock;
    for (uint32_t k = 0; k < kHidden; ++k) {
      ASSERT_EQ(x.data()[token * kHidden + k], x_want[token * kHidden + k]);
      if (GetParam() == ActivationFormat::kF32) {
        const float wanted = want.Floats(block)[k * kRowBlock + lane];
        ASSERT_NEAR(got.Floats(block)[k * kRowBlock + lane], wanted, 1e-5f * std::abs(wanted))
            << token << ", " << k;
      } else {
        const ActivationGroup& a = got.Groups(block)[k / 32];
        const ActivationGroup& b = want.Groups(block)[k / 32];
        ASSERT_LE(std::abs(a.q[k % 32 / 4][lane][k % 4] - b.q[k % 32 / 4][lane][k % 4]), 1)
            << token << ", " << k;
        ASSERT_NEAR(a.scale[lane], b.scale[lane], 1e-5f * b.scale[lane]);
        ASSERT_NEAR(a.sum[lane], b.sum[lane], 4.0f * b.scale[lane]);
        ASSERT_EQ(a.start[lane], a.half_start[0][lane] + a.half_start[1][lane]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RmsNormCudaTest,
                         testing::Values(ActivationFormat::kInt8, ActivationFormat::kF32),
                         [](const auto& info) {
                           return info.param == ActivationFormat::kInt8 ? "Int8" : "F32";
                         });

}  // namespace
}  // namespace baton::kernels
