#include "tests/fakes/fake_worker.h"

#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "model/weights/model_file.h"
#include "tests/fakes/fake_model.h"
#include "worker/worker_flags.h"

ABSL_FLAG(absl::Duration, fake_step, absl::Milliseconds(5), "Time of a step, at least.");
ABSL_FLAG(absl::Duration, fake_row, absl::ZeroDuration(), "Time that each row of a step adds.");
ABSL_FLAG(uint64_t, fake_seed, 1, "Stands for the weights: workers of one seed agree.");

namespace baton::fakes {
namespace {

// 4,096 tokens of the fake's KV take 256 KiB: a small arena holds thousands of requests.
constexpr uint64_t kArenaBytes = 64 << 20;

absl::Status Run(const worker::WorkerProgram& program) {
  ASSIGN_OR_RETURN(worker::WorkerConfig config, worker::ConfigFromFlags(program.role));
  if (config.arena_bytes == 0) config.arena_bytes = kArenaBytes;
  RETURN_IF_ERROR(worker::PrepareProcess(program, config));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::ModelFile> file,
                   model::ModelFile::Open(config.model_path));
  FakeModel model({.name = file->name(),
                   .seed = absl::GetFlag(FLAGS_fake_seed),
                   .digest = file->digest(),
                   .vocabulary_size = file->config().vocabulary_size,
                   .context_tokens = file->config().context_tokens,
                   .block_tokens = config.block_tokens,
                   .batch_rows_max = config.chunk_tokens + worker::EffectiveRunningMax(config),
                   .step_time = absl::GetFlag(FLAGS_fake_step),
                   .row_time = absl::GetFlag(FLAGS_fake_row)});
  const std::string& name =
      config.served_model_name.empty() ? file->name() : config.served_model_name;
  return worker::ServeUntilTerminated(
      program, config,
      {.model = &model, .layout = model.kv_layout(), .name = name, .cpu_level = "fake"});
}

}  // namespace

int FakeWorkerMain(const worker::WorkerProgram& program, int argc, char** argv) {
  worker::ParseCommandLine(program, argc, argv);
  return worker::ExitWith(program, Run(program));
}

}  // namespace baton::fakes
