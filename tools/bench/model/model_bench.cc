// Speed of a model alone: no server, no sampling. One JSON object a line; the first says what the model is made of, so that
// limits can be computed (tools/bench_peers).
//
//   model_bench --model=FILE.gguf [--prefill=512,2048] [--decode=1,8,16,32] [--context=128] [--threads=N] [--kv_dtype=bf16]
//
//   prefill_N  a prompt of N tokens, in chunks of --chunk, logits of the last: N tokens / its time
//   decode_B   B sequences, one token each, at contexts from --context on: B tokens / the time of a step
//
// Figures are medians.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/buffer.h"
#include "model/llama/llama_model.h"
#include "model/weights/model_file.h"
#include "tools/bench/limits.h"

ABSL_FLAG(std::string, model, "", "GGUF file, or folder with config.json and safetensors");
ABSL_FLAG(uint32_t, threads, 0, "kernel threads; 0: one per core");
ABSL_FLAG(std::vector<std::string>, prefill, std::vector<std::string>({"512", "2048"}), "prompt lengths");
ABSL_FLAG(std::vector<std::string>, decode, std::vector<std::string>({"1", "8", "16", "32"}), "batch sizes");
ABSL_FLAG(uint32_t, context, 128, "tokens before a decode step");
ABSL_FLAG(uint32_t, chunk, 512, "rows of one prefill step, at most");
ABSL_FLAG(std::string, kv_dtype, "", "f32, f16 or bf16; empty: the model's default");
ABSL_FLAG(std::string, cpu, "auto", "CPU level: auto, reference, avx2, avx512-nobf16, avx512");
ABSL_FLAG(std::string, cache_folder, "", "where packed weights are kept; empty: nowhere");

namespace baton::bench {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr double kSecondsPerFigure = 1.0;
constexpr size_t kRepeatsMin = 3;
constexpr uint32_t kDecodeStepsMax = 64;  // Then the context starts anew.

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

absl::StatusOr<std::vector<uint32_t>> Numbers(const std::vector<std::string>& texts) {
  std::vector<uint32_t> numbers;
  for (const std::string& text : texts) {
    uint32_t number = 0;
    if (text.empty()) continue;
    if (!absl::SimpleAtoi(text, &number) || number == 0) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a positive number"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::optional<kernels::KvType>> ParseKvType(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "f32") return kernels::KvType::kF32;
  if (name == "f16") return kernels::KvType::kF16;
  if (name == "bf16") return kernels::KvType::kBf16;
  return absl::InvalidArgumentError(absl::StrCat("kv_dtype is ", name, ", must be f32, f16 or bf16"));
}

// One model and an arena in which sequence i owns a run of blocks.
class Bench {
 public:
  Bench(model::LlamaModel& model, uint32_t sequences_max, uint32_t tokens_max)
      : model_(model), blocks_per_sequence_((tokens_max + kBlockTokens - 1) / kBlockTokens) {
    const uint32_t blocks = blocks_per_sequence_ * sequences_max;
    arena_ = kernels::Buffer(model.kv_layout().block_bytes() * blocks);
    kv_ = {.layout = model.kv_layout(), .block_count = blocks, .base = arena_.data()};
    logits_.resize(uint64_t{sequences_max} * model.info().vocabulary_size);
    for (uint32_t i = 0; i < blocks; ++i) table_.push_back(i);
    std::mt19937 random(1);
    tokens_.resize(std::max(tokens_max, sequences_max));
    for (uint32_t& token : tokens_) token = random() % model.info().vocabulary_size;
  }

  // The prompt of sequence `index`, from position 0.
  void Prefill(uint32_t index, uint32_t length, uint32_t chunk) {
    for (uint32_t start = 0; start < length; start += chunk) {
      const uint32_t count = std::min(chunk, length - start);
      const model::ForwardSequence rows = {.blocks = Blocks(index),
                                           .start_position = start,
                                           .token_count = count,
                                           .logit_rows = start + count == length ? 1u : 0u};
      Forward({.tokens = absl::MakeConstSpan(tokens_).subspan(start, count),
               .sequences = absl::MakeConstSpan(&rows, 1)});
    }
  }

  // One token of each of the first `batch` sequences.
  void Decode(uint32_t batch, uint32_t position) {
    std::vector<model::ForwardSequence> rows;
    for (uint32_t i = 0; i < batch; ++i) {
      rows.push_back({.blocks = Blocks(i), .start_position = position, .token_count = 1, .logit_rows = 1});
    }
    Forward({.tokens = absl::MakeConstSpan(tokens_).subspan(0, batch), .sequences = rows});
  }

 private:
  absl::Span<const uint32_t> Blocks(uint32_t index) const {
    return absl::MakeConstSpan(table_).subspan(uint64_t{index} * blocks_per_sequence_, blocks_per_sequence_);
  }
  void Forward(const model::ForwardBatch& batch) {
    uint64_t rows = 0;
    for (const model::ForwardSequence& sequence : batch.sequences) rows += sequence.logit_rows;
    model_.Forward(batch, kv_, nullptr,
                   absl::MakeSpan(logits_).subspan(0, rows * model_.info().vocabulary_size));
  }

  model::LlamaModel& model_;
  uint32_t blocks_per_sequence_;
  kernels::Buffer arena_;
  kernels::PagedKvView kv_;
  std::vector<uint32_t> table_, tokens_;
  std::vector<float> logits_;
};

void Print(const std::string& name, double tokens, const std::vector<double>& seconds) {
  const double median = Median(seconds);
  std::printf("{\"name\": \"%s\", \"tokens_per_second\": %.1f, \"seconds\": %.6f, \"best_seconds\": %.6f, \"repeats\": %zu}\n",
              name.c_str(), tokens / median, median, *std::min_element(seconds.begin(), seconds.end()), seconds.size());
  std::fflush(stdout);
}

// Calls `once` until the time is up; the first call warms up and is not counted.
template <typename Once>
std::vector<double> Repeat(Once once) {
  once();
  std::vector<double> seconds;
  const double end = NowSeconds() + kSecondsPerFigure;
  while (seconds.size() < kRepeatsMin || NowSeconds() < end) {
    const double start = NowSeconds();
    once();
    seconds.push_back(NowSeconds() - start);
  }
  return seconds;
}

void MeasurePrefill(model::LlamaModel& model, uint32_t length, uint32_t chunk) {
  Bench bench(model, 1, length);
  Print(absl::StrCat("prefill_", length), length, Repeat([&] { bench.Prefill(0, length, chunk); }));
}

void MeasureDecode(model::LlamaModel& model, uint32_t batch, uint32_t context, uint32_t chunk) {
  Bench bench(model, batch, context + kDecodeStepsMax);
  for (uint32_t i = 0; i < batch; ++i) bench.Prefill(i, context, chunk);
  uint32_t step = 0;
  Print(absl::StrCat("decode_", batch), batch, Repeat([&] { bench.Decode(batch, context + step++ % kDecodeStepsMax); }));
}

void PrintFacts(const model::ModelFile& file, const model::LlamaModel& model) {
  const model::LlamaConfig& c = file.config();
  const uint64_t q = uint64_t{c.heads} * c.head_dim, kv = uint64_t{c.kv_heads} * c.head_dim;
  const uint64_t layer = c.hidden * (2 * q + 2 * kv + uint64_t{3} * c.feed_forward);
  const kernels::KvLayout layout = model.kv_layout();
  std::printf("{\"model\": \"%s\", \"numerics_class\": \"%s\", \"layers\": %u, \"heads\": %u, \"head_dim\": %u, "
              "\"layer_weights\": %llu, \"head_weights\": %llu, \"packed_bytes\": %llu, \"kv_bytes_per_token\": %llu}\n",
              file.name().c_str(), model.numerics_class().c_str(), c.layers, c.heads, c.head_dim,
              static_cast<unsigned long long>(layer * c.layers),
              static_cast<unsigned long long>(uint64_t{c.vocabulary_size} * c.hidden),
              static_cast<unsigned long long>(model.packed_bytes()),
              static_cast<unsigned long long>(layout.block_bytes() / layout.block_tokens));
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> prefills, Numbers(absl::GetFlag(FLAGS_prefill)));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> batches, Numbers(absl::GetFlag(FLAGS_decode)));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::ModelFile> file, model::ModelFile::Open(absl::GetFlag(FLAGS_model)));
  model::LlamaOptions options = {.threads = absl::GetFlag(FLAGS_threads),
                                 .block_tokens = kBlockTokens,
                                 .cache_folder = absl::GetFlag(FLAGS_cache_folder)};
  ASSIGN_OR_RETURN(options.cpu_level, kernels::ParseCpuLevel(absl::GetFlag(FLAGS_cpu)));
  ASSIGN_OR_RETURN(options.kv_type, ParseKvType(absl::GetFlag(FLAGS_kv_dtype)));
  const double start = NowSeconds();
  ASSIGN_OR_RETURN(const std::unique_ptr<model::LlamaModel> model, model::LlamaModel::Load(*file, options));
  std::fprintf(stderr, "%s, loaded in %.2f s\n", model->description().c_str(), NowSeconds() - start);

  const uint32_t chunk = absl::GetFlag(FLAGS_chunk), context = absl::GetFlag(FLAGS_context);
  const uint32_t batch_max = batches.empty() ? 0 : *std::max_element(batches.begin(), batches.end());
  if (chunk < 1 || std::max(chunk, batch_max) > model->batch_rows_max()) {
    return absl::InvalidArgumentError(absl::StrCat("chunk and batch must be in [1, ", model->batch_rows_max(), "]"));
  }
  const uint32_t longest = std::max(prefills.empty() ? 0 : *std::max_element(prefills.begin(), prefills.end()),
                                    context + kDecodeStepsMax);
  if (longest > model->info().context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(longest, " tokens exceed the model's context of ", model->info().context_tokens));
  }
  PrintFacts(*file, *model);
  for (const uint32_t length : prefills) MeasurePrefill(*model, length, chunk);
  for (const uint32_t batch : batches) MeasureDecode(*model, batch, context, chunk);
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("measures prefill and decode of a model in this process; see the head of the source");
  absl::ParseCommandLine(argc, argv);
  if (const absl::Status status = baton::bench::Run(); !status.ok()) {
    std::fprintf(stderr, "model_bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
