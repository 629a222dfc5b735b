// Requests that come together, on the runner with a real model and no server around it: what the
// engine alone can do.
//
//   {"name": "together", "requests": 16, "input": 128, "output": 64, ..., "tokens_per_second":
//   1234.5, ...}
//
// tokens_per_second counts input and output; prefill_seconds runs until every request has its first
// token, decode_tokens_per_second counts the steps after that. The best of --repeats runs is
// printed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/cpu_level.h"
#include "kvstore/kv_arena.h"
#include "kvstore/kv_block_pool.h"
#include "model/llama/llama_model.h"
#include "model/weights/model_file.h"
#include "runner/runner.h"
#include "runner/step_planner.h"

ABSL_FLAG(std::string, model, "", "GGUF file, or a folder with config.json and safetensors");
ABSL_FLAG(uint32_t, requests, 16, "requests that come at once, [1, 1024]");
ABSL_FLAG(uint32_t, input, 128, "tokens of each prompt, drawn at random");
ABSL_FLAG(uint32_t, output, 64, "tokens of each answer, greedy");
ABSL_FLAG(uint32_t, chunk, 512, "prompt tokens of one step at most, [16, 8192]");
ABSL_FLAG(uint32_t, block_tokens, 16, "tokens of a KV block: 8, 16, 32, 64 or 128");
ABSL_FLAG(std::string, kv_dtype, "", "f32, f16 or bf16; empty: f32 for an F32 model, else bf16");
ABSL_FLAG(uint32_t, threads, 0, "kernel threads; 0: one per core");
ABSL_FLAG(std::string, cpu_level, "auto", "reference, avx2, avx512-nobf16, avx512 or auto");
ABSL_FLAG(uint32_t, repeats, 3, "runs, of which the best is printed");

namespace baton::runner {
namespace {

struct BenchConfig {
  std::string model_path;
  uint32_t requests;
  uint32_t input_tokens;
  uint32_t output_tokens;
  uint32_t chunk_tokens;
  uint32_t repeats;
};

struct Timing {
  double seconds = 0;
  double prefill_seconds = 0;  // Until each request has its first token.
  uint32_t decode_rows = 0;    // Computed after that.
};

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::StatusOr<std::optional<kernels::KvType>> ParseKvType(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "f32") return kernels::KvType::kF32;
  if (name == "f16") return kernels::KvType::kF16;
  if (name == "bf16") return kernels::KvType::kBf16;
  return absl::InvalidArgumentError(
      absl::StrCat("kv_dtype is \"", name, "\", legal: f32, f16, bf16"));
}

StepInbox MakeRequests(const BenchConfig& config, const model::ModelInfo& info) {
  std::mt19937 random(1);
  StepInbox inbox;
  for (uint32_t i = 0; i < config.requests; ++i) {
    SequenceRequest request{.id = SequenceId{i},
                            .output_start = config.input_tokens,
                            .max_tokens = config.output_tokens};
    for (uint32_t t = 0; t < config.input_tokens; ++t) {
      request.tokens.push_back(random() % info.vocabulary_size);
    }
    inbox.add.push_back(std::move(request));
  }
  return inbox;
}

Timing RunOnce(Runner& runner, StepInbox inbox) {
  uint32_t without_first_token = static_cast<uint32_t>(inbox.add.size());
  Timing timing;
  const double start = NowSeconds();
  do {
    const StepOutbox outbox = runner.Step(absl::Now(), std::exchange(inbox, {}));
    CHECK(!outbox.idle);
    if (without_first_token == 0) timing.decode_rows += outbox.decode_rows;
    for (const TokenOutput& output : outbox.tokens) without_first_token -= output.position == 0;
    if (without_first_token == 0 && timing.prefill_seconds == 0) {
      timing.prefill_seconds = NowSeconds() - start;
    }
  } while (runner.counts().running + runner.counts().waiting > 0);
  timing.seconds = NowSeconds() - start;
  return timing;
}

void Print(const BenchConfig& config, const Timing& best) {
  const double total = double{1} * config.requests * (config.input_tokens + config.output_tokens);
  const double decode_seconds = best.seconds - best.prefill_seconds;
  std::printf(
      "{\"name\": \"together\", \"requests\": %u, \"input\": %u, \"output\": %u, \"chunk\": %u, "
      "\"seconds\": %.4f, \"tokens_per_second\": %.1f, \"prefill_seconds\": %.4f, "
      "\"prefill_tokens_per_second\": %.1f, \"decode_tokens_per_second\": %.1f}\n",
      config.requests, config.input_tokens, config.output_tokens, config.chunk_tokens, best.seconds,
      total / best.seconds, best.prefill_seconds,
      config.requests * config.input_tokens / best.prefill_seconds,
      decode_seconds > 0 ? best.decode_rows / decode_seconds : 0.0);
}

absl::Status Bench(const BenchConfig& config, const model::LlamaOptions& options) {
  const RunnerConfig runner_config{.chunk_tokens = config.chunk_tokens,
                                   .running_max = config.requests,
                                   .prefill_packed_max = std::min(config.requests, 256u)};
  RETURN_IF_ERROR(Validate(runner_config));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::ModelFile> file,
                   model::ModelFile::Open(config.model_path));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::LlamaModel> llama,
                   model::LlamaModel::Load(*file, options));
  if (config.input_tokens == 0 || config.output_tokens == 0 ||
      config.input_tokens + config.output_tokens > llama->info().context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("input + output is ", config.input_tokens, " + ",
                                                   config.output_tokens, ", legal: [1 + 1, ",
                                                   llama->info().context_tokens, "]"));
  }
  const uint32_t blocks =
      config.requests * BlocksFor(config.input_tokens + config.output_tokens, options.block_tokens);
  ASSIGN_OR_RETURN(const std::unique_ptr<kvstore::KvArena> arena,
                   kvstore::KvArena::Create(llama->kv_layout(), blocks));
  kvstore::KvBlockPool pool(blocks);

  Timing best;
  for (uint32_t repeat = 0; repeat < config.repeats; ++repeat) {
    Runner runner(*llama, pool, arena->view(), runner_config, /*observer=*/nullptr);
    const Timing timing = RunOnce(runner, MakeRequests(config, llama->info()));
    if (repeat == 0 || timing.seconds < best.seconds) best = timing;
  }
  Print(config, best);
  return absl::OkStatus();
}

absl::Status BenchWithFlags() {
  const BenchConfig config{.model_path = absl::GetFlag(FLAGS_model),
                           .requests = absl::GetFlag(FLAGS_requests),
                           .input_tokens = absl::GetFlag(FLAGS_input),
                           .output_tokens = absl::GetFlag(FLAGS_output),
                           .chunk_tokens = absl::GetFlag(FLAGS_chunk),
                           .repeats = std::max(absl::GetFlag(FLAGS_repeats), 1u)};
  model::LlamaOptions options{.threads = absl::GetFlag(FLAGS_threads),
                              .block_tokens = absl::GetFlag(FLAGS_block_tokens),
                              .batch_rows_max = config.chunk_tokens + config.requests};
  ASSIGN_OR_RETURN(options.cpu_level, kernels::ParseCpuLevel(absl::GetFlag(FLAGS_cpu_level)));
  ASSIGN_OR_RETURN(options.kv_type, ParseKvType(absl::GetFlag(FLAGS_kv_dtype)));
  return Bench(config, options);
}

}  // namespace
}  // namespace baton::runner

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Throughput of the runner with a real model and no server.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::runner::BenchWithFlags();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
