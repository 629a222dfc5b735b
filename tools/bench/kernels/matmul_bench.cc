// Speed of matmul, with quantisation of the rows, beside what the machine can do (measured in the
// same run):
//
//   matmul_bench [TYPE [N K [THREADS]]]      matmul_bench Q4_1 3072 576 2
//
// M <= 32 reads 96 MB of different matrices in turn, as decoding does; larger M use one that stays
// in cache, as prefill.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "kernels/op_table.h"
#include "tests/kernels/random_tensor.h"
#include "tools/bench/limits.h"

namespace baton::bench {
namespace {

using kernels::TensorType;

constexpr uint32_t kDecodeRowsMax = 32;

struct Shape {
  TensorType type;
  uint32_t n;
  uint32_t k;
};

class Bench {
 public:
  Bench(const Shape& shape, uint32_t threads)
      : shape_(shape), context_(threads), ops_(*kernels::Bind(kernels::BestCpuLevel())) {
    const kernels::RandomTensor tensor(shape.type, shape.n, shape.k, 1);
    const kernels::MatrixSource source = {.tensors = {tensor.view()}};
    matrix_bytes_ = kernels::PackedBytes(source, ops_.layout);
    const uint64_t copies = std::max<uint64_t>(1, (uint64_t{96} << 20) / matrix_bytes_);
    bytes_ = kernels::Buffer(matrix_bytes_ * copies);
    for (uint64_t i = 0; i < copies; ++i) {
      const absl::Span<uint8_t> bytes(bytes_.data() + i * matrix_bytes_, matrix_bytes_);
      kernels::Pack(source, ops_.layout, bytes);
      matrices_.push_back(*kernels::PackedMatrix::Open(bytes));
    }
  }

  uint64_t matrix_bytes() const { return matrix_bytes_; }

  // Seconds of one matmul, median over about a quarter of a second.
  double Seconds(uint32_t rows) {
    std::vector<float> x(uint64_t{rows} * shape_.k), out(uint64_t{rows} * shape_.n);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random);
    kernels::Activations y(rows, shape_.k);
    std::vector<double> seconds;
    const double end = NowSeconds() + 0.25;
    for (size_t i = 0; seconds.size() < 5 || NowSeconds() < end; ++i) {
      const kernels::PackedMatrix& weights =
          matrices_[rows <= kDecodeRowsMax ? i % matrices_.size() : 0];
      const double start = NowSeconds();
      ops_.quantize({.x = x.data(),
                     .x_stride = shape_.k,
                     .rows = rows,
                     .columns = shape_.k,
                     .format = weights.activation_format(),
                     .y = &y},
                    context_);
      ops_.matmul({.x = &y, .weights = &weights, .out = out.data(), .out_stride = shape_.n},
                  context_);
      seconds.push_back(NowSeconds() - start);
    }
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }

 private:
  Shape shape_;
  kernels::KernelContext context_;
  kernels::BoundOps ops_;
  uint64_t matrix_bytes_ = 0;
  kernels::Buffer bytes_;
  std::vector<kernels::PackedMatrix> matrices_;
};

void Run(const Shape& shape, uint32_t threads, double peak_gops, double stream_gbs) {
  Bench bench(shape, threads);
  const std::string type(kernels::TensorTypeName(shape.type));
  for (uint32_t rows : {1u, 2u, 4u, 8u, 16u, 32u, 33u, 64u, 128u, 512u}) {
    const double seconds = bench.Seconds(rows);
    const double gops = 2.0 * rows * shape.n * shape.k / seconds / 1e9;
    std::printf("%-4s N %5u K %5u M %4u  %9.2f us  %6.0f GOP/s  %3.0f %% of peak", type.c_str(),
                shape.n, shape.k, rows, seconds * 1e6, gops, 100 * gops / peak_gops);
    const double gbs = static_cast<double>(bench.matrix_bytes()) / seconds / 1e9;
    if (rows <= kDecodeRowsMax) {
      std::printf("  %5.1f GB/s  %3.0f %% of a stream read", gbs, 100 * gbs / stream_gbs);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

TensorType TypeNamed(absl::string_view name) {
  for (TensorType type : kernels::kAllTypes) {
    if (kernels::TensorTypeName(type) == name) return type;
  }
  CHECK(false) << "unknown type " << std::string(name);
  return TensorType::kF32;
}

int Main(int argc, char** argv) {
  const uint32_t threads = argc > 4 ? std::atoi(argv[4]) : std::thread::hardware_concurrency();
  const double peak_gops = Int8Gops(threads);
  const double stream_gbs = ReadGigabytesPerSecond(threads, 96);
  std::printf("%u threads: int8 peak %.0f GOP/s, stream read %.1f GB/s\n", threads, peak_gops,
              stream_gbs);
  const TensorType type = TypeNamed(argc > 1 ? argv[1] : "Q4_1");
  if (argc > 3) {
    const int n = std::atoi(argv[2]), k = std::atoi(argv[3]);
    CHECK(n > 0 && k > 0) << "N and K must be positive";
    Run({type, static_cast<uint32_t>(n), static_cast<uint32_t>(k)}, threads, peak_gops, stream_gbs);
    return 0;
  }
  for (const auto& [n, k] : {std::pair{960u, 576u}, {3072u, 576u}, {576u, 1536u}}) {
    Run({type, n, k}, threads, peak_gops, stream_gbs);
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
