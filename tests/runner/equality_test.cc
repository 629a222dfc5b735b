// The equality suite on tiny models. With BATON_PLANTED_FAULTS the same comparison must fail for a
// stale block, a wrong position and a reordered sum.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/attention/attention.h"
#include "tests/runner/equality_suite.h"

namespace baton::runner {
namespace {

using kernels::CpuLevel;
using kernels::KvType;

const ModelCase kModelCases[] = {
    {"GoldenF32", "llama-f32"},
    {"GoldenBf16", "llama-bf16"},
    {"GoldenQ4_1", "tiny.Q4_1.gguf"},
    {"GoldenQ6_K", "tiny.Q6_K.gguf"},
    {"TinyF32", "tiny-llama3.F32.gguf"},
    {.name = "TinyF32Reference",
     .file = "tiny-llama3.F32.gguf",
     .options = {.cpu_level = CpuLevel::kReference},
     .alone_stride = 6},
    {"TinyF32KvF16", "tiny-llama3.F32.gguf", {.kv_type = KvType::kF16}},
    {"TinyF16", "tiny-llama3.F16.gguf"},
    {"TinyQ4_1", "tiny-llama3.Q4_1.gguf"},
    {"TinyQ4_1NoBf16", "tiny-llama3.Q4_1.gguf", {.cpu_level = CpuLevel::kAvx512NoBf16}},
    {"TinyQ6_K", "tiny-llama3.Q6_K.gguf"},
    {"TinyQ4_K_M", "tiny-llama3.Q4_K_M.gguf"},
    {"TinyQ8_0KvF32", "tiny-llama3.Q8_0.gguf", {.kv_type = KvType::kF32}},
};
INSTANTIATE_TEST_SUITE_P(Models, EqualityTest, testing::ValuesIn(kModelCases),
                         [](const auto& info) { return info.param.name; });

#ifdef BATON_PLANTED_FAULTS

class FaultTest : public EqualityTest {};

// Where ExpectEqualAnswers() would fail.
uint32_t CountDifferent(const Answers& got, const Answers& want) {
  uint32_t different = 0;
  for (const auto& [id, answer] : want) different += got.at(id) != answer;
  return different;
}

TEST_P(FaultTest, AStaleBlockIsSeen) {
  const uint32_t blocks = RoomyBlocks(requests_, 16);
  const auto worker = MakeWorker(*model_, blocks, {.planted_fault = PlantedFault::kStaleBlock});
  EXPECT_GT(CountDifferent(worker->Run(requests_), alone_), 0u);
}

TEST_P(FaultTest, AWrongPositionIsSeen) {
  const uint32_t blocks = RoomyBlocks(requests_, 16);
  const auto worker = MakeWorker(*model_, blocks, {.planted_fault = PlantedFault::kWrongPosition});
  EXPECT_GT(CountDifferent(worker->Run(requests_), alone_), 0u);
}

// Attention as a first draft has it: f32 sums whose order depends on how many rows the batch has.
void AttendWithReorderedSums(const kernels::AttentionArgs& args, kernels::KernelContext&) {
  const kernels::KvLayout& layout = args.kv.layout;
  CHECK(layout.type == KvType::kF32);
  const bool backwards = kernels::CheckArgs(args) > 1;
  const uint32_t dims = layout.head_dim;
  uint64_t row = 0;
  for (const kernels::SequenceRows& sequence : args.sequences) {
    for (uint32_t i = 0; i < sequence.row_count; ++i, ++row) {
      const uint32_t length = sequence.start_position + i + 1;
      for (uint32_t head = 0; head < args.heads; ++head) {
        const uint32_t kv_head = head / (args.heads / layout.kv_heads);
        const float* q = args.q + row * args.q_stride + head * dims;
        float* out = args.out + row * args.out_stride + head * dims;
        std::vector<float> sums(dims, 0.0f);
        float total = 0.0f;
        for (uint32_t step = 0; step < length; ++step) {
          const uint32_t key = backwards ? length - 1 - step : step;
          const uint32_t block = sequence.blocks[key / layout.block_tokens];
          const uint32_t slot = key % layout.block_tokens;
          const auto* k = reinterpret_cast<const float*>(args.kv.K(args.layer, block, kv_head));
          const auto* v = reinterpret_cast<const float*>(args.kv.V(args.layer, block, kv_head));
          float score = 0.0f;
          for (uint32_t d = 0; d < dims; ++d) score += q[d] * k[KIndex(layout, slot, d)];
          const float weight = std::exp(score * args.scale);
          total += weight;
          for (uint32_t d = 0; d < dims; ++d) sums[d] += weight * v[VIndex(layout, slot, d)];
        }
        for (uint32_t d = 0; d < dims; ++d) out[d] = sums[d] / total;
      }
    }
  }
}

TEST_P(FaultTest, AReorderedSumIsSeen) {
  model::LlamaOptions options = GetParam().options;
  options.planted_attention = AttendWithReorderedSums;
  const auto model = Load(*file_, options);
  ASSERT_NE(model, nullptr);
  const uint32_t blocks = RoomyBlocks(requests_, 16);
  const Answers alone = Alone(*model, requests_);
  EXPECT_GT(CountDifferent(MakeWorker(*model, blocks, {})->Run(requests_), alone), 0u);
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultTest,
                         testing::Values(ModelCase{"GoldenF32", "llama-f32"}),
                         [](const auto& info) { return info.param.name; });

#endif

}  // namespace
}  // namespace baton::runner
