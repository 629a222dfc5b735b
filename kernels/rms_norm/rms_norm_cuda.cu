// RMSNorm on CUDA: the contract of rms_norm.h, compiled wherever the toolkit is, so that the
// contract stays one that a GPU can honour. One thread block a token, one warp a group of 32
// elements.
#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/rms_norm/rms_norm.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kAllLanes = ~0u;
static_assert(kWarp == kGroupElements);

// What the device needs of the args: Activations itself lives on the host.
struct Rows {
  RmsNormArgs args;
  ActivationGroup* groups;  // Of block 0; null for kF32.
  float* floats;            // Of block 0; null for kInt8.
};

// The sum over `width` neighbouring lanes, in each of them.
template <typename T>
__device__ T SumOverLanes(T value, uint32_t width) {
  for (uint32_t offset = width / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ float MaxOverWarp(float value) {
  for (uint32_t offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

__device__ float SumOverBlock(float value) {
  __shared__ float warp_sums[kWarps];
  value = SumOverLanes(value, kWarp);
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0.0f;
  for (float warp_sum : warp_sums) sum += warp_sum;
  return sum;
}

// Each lane of a warp brings element `lane` of the group.
__device__ void QuantizeGroup(float x, uint32_t row, ActivationGroup& group) {
  const uint32_t lane = threadIdx.x % kWarp;
  const float max = MaxOverWarp(fabsf(x));
  const bool zero = max < 0x1p-100f;
  const int32_t q = zero ? 0 : __float2int_rn(x * (127.0f / max));
  const int32_t half_sum = SumOverLanes(q, kWarp / 2);
  const int32_t sum = SumOverLanes(q, kWarp);
  const float scale = zero ? 0.0f : max / 127.0f;
  group.q[lane / 4][row][lane % 4] = static_cast<int8_t>(q);
  if (lane % (kWarp / 2) == 0) group.half_start[lane / (kWarp / 2)][row] = -128 * half_sum;
  if (lane != 0) return;
  group.scale[row] = scale;
  group.sum[row] = scale * static_cast<float>(sum);
  group.start[row] = -128 * sum;
}

// Launch: <<<tokens, kThreads>>>.
__global__ void RmsNormKernel(Rows rows) {
  const RmsNormArgs& args = rows.args;
  const uint32_t token = blockIdx.x;
  const uint64_t row = args.row_indices != nullptr ? args.row_indices[token] : token;
  float* x = args.x + row * args.x_stride;
  const float* residual =
      args.residual != nullptr ? args.residual + row * args.residual_stride : nullptr;

  float sum_of_squares = 0.0f;
  for (uint32_t h = threadIdx.x; h < args.hidden; h += kThreads) {
    if (residual != nullptr) x[h] += residual[h];
    sum_of_squares += x[h] * x[h];
  }
  const float mean = SumOverBlock(sum_of_squares) / static_cast<float>(args.hidden);
  const float scale = 1.0f / sqrtf(mean + args.epsilon);

  // A thread meets the elements it has added to itself, so x needs no barrier. kInt8: hidden is a
  // multiple of a warp, so a warp's lanes stay together.
  const uint64_t block = token / kRowBlock;
  const uint32_t lane = token % kRowBlock;
  for (uint32_t h = threadIdx.x; h < args.hidden; h += kThreads) {
    const float y = x[h] * scale * args.weight[h];
    if (rows.floats != nullptr) {
      rows.floats[(block * args.hidden + h) * kRowBlock + lane] = y;
    } else {
      QuantizeGroup(y, lane, rows.groups[(block * args.hidden + h) / kGroupElements]);
    }
  }
}

}  // namespace

void RmsNormCuda(const RmsNormArgs& args, KernelContext&) {
  CheckArgs(args);
  args.y->Reset(args.format, args.tokens, args.hidden);
  if (args.tokens == 0) return;  // A grid of no blocks is a launch error.
  const bool int8 = args.format == ActivationFormat::kInt8;
  RmsNormKernel<<<args.tokens, kThreads>>>({.args = args,
                                            .groups = int8 ? args.y->Groups(0) : nullptr,
                                            .floats = int8 ? nullptr : args.y->Floats(0)});
  const cudaError_t error = cudaGetLastError();
  CHECK(error == cudaSuccess) << "RmsNorm: " << cudaGetErrorString(error);
}

}  // namespace baton::kernels
