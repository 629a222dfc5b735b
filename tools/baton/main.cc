// The `baton` command: a client of a cluster, and (serve) a whole cluster in one process.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "base/termination.h"
#include "tools/baton/commands.h"
#include "tools/baton/serve.h"

ABSL_FLAG(std::string, router, "127.0.0.1:50051", "host:port of the router's client port");
ABSL_FLAG(std::string, prompt, "", "what to say; empty: chat asks at the terminal");
ABSL_FLAG(std::string, system, "", "chat: a system message to begin with");
ABSL_FLAG(std::string, model, "", "model name; empty: the only one served");
ABSL_FLAG(int64_t, max_tokens, 0, "tokens to generate at most; 0: as many as the context holds");
ABSL_FLAG(float, temperature, 0.0f, "0: greedy");
ABSL_FLAG(uint32_t, top_k, 0, "0: off");
ABSL_FLAG(float, top_p, 1.0f, "(0, 1]; 1: off");
ABSL_FLAG(float, min_p, 0.0f, "[0, 1]; 0: off");
ABSL_FLAG(float, repetition_penalty, 1.0f, "> 0; 1: off");
ABSL_FLAG(int64_t, seed, -1, "seed of the draws; -1: the router chooses one");
ABSL_FLAG(std::vector<std::string>, stop, {}, "stop strings, comma-separated");
ABSL_FLAG(bool, ignore_eos, false, "do not stop at the end-of-sequence token");
ABSL_FLAG(bool, parse_special, false, "tokenize: parse special tokens spelled out in the text");

// serve only; the separate processes have more, see their --help.
ABSL_FLAG(uint16_t, port, 50051, "serve: port for clients, 0: any");
ABSL_FLAG(uint16_t, metrics_port, 9400, "serve: port of /metrics, 0: any");
ABSL_FLAG(bool, split, false, "serve: a prefill and a decode worker instead of one that does both");
ABSL_FLAG(std::string, cpu, "auto", "serve: auto, reference, avx2, avx512-nobf16 or avx512");
ABSL_FLAG(uint32_t, threads, 0, "serve: kernel threads of each worker, 0: one per core");
ABSL_FLAG(uint32_t, context_tokens, 0, "serve: prompt and output together, 0: the model's, at most 8192");
ABSL_FLAG(uint32_t, block_tokens, 16, "serve: tokens of a KV block: 8, 16, 32, 64 or 128");
ABSL_FLAG(uint32_t, chunk_tokens, 512, "serve: prompt tokens of one step, [16, 8192]");
ABSL_FLAG(uint64_t, arena_bytes, 0, "serve: KV of each worker, 0: a fifth of free memory, at most 4 GiB");
ABSL_FLAG(std::string, kv_dtype, "", "serve: f32, f16 or bf16; empty: f32 for F32 models, else bf16");

namespace baton::tools {
namespace {

constexpr char kUsage[] =
    "talks to a Baton cluster.\n\n"
    "  baton chat [--prompt TEXT]        one answer, or a conversation at the terminal\n"
    "  baton generate --prompt TEXT      continues a text\n"
    "  baton tokenize TEXT               token ids and their bytes\n"
    "  baton models                      what is served\n"
    "  baton status                      workers, blocks and queues at a glance\n"
    "  baton serve MODEL.gguf            router and workers in this process\n";

AnswerOptions OptionsFromFlags() {
  AnswerOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  if (const int64_t n = absl::GetFlag(FLAGS_max_tokens); n != 0) options.max_tokens = n;
  options.temperature = absl::GetFlag(FLAGS_temperature);
  options.top_k = absl::GetFlag(FLAGS_top_k);
  options.top_p = absl::GetFlag(FLAGS_top_p);
  options.min_p = absl::GetFlag(FLAGS_min_p);
  options.repetition_penalty = absl::GetFlag(FLAGS_repetition_penalty);
  if (const int64_t seed = absl::GetFlag(FLAGS_seed); seed >= 0) options.seed = seed;
  options.stop = absl::GetFlag(FLAGS_stop);
  options.ignore_eos = absl::GetFlag(FLAGS_ignore_eos);
  return options;
}

absl::StatusOr<ServeSettings> ServeSettingsFromFlags(const std::string& model_path) {
  ServeSettings settings;
  settings.split = absl::GetFlag(FLAGS_split);
  settings.router.port = absl::GetFlag(FLAGS_port);
  settings.router.metrics_port = absl::GetFlag(FLAGS_metrics_port);
  settings.router.worker_port = 0;
  settings.router.worker_wait = absl::Seconds(60);
  settings.worker.model_path = model_path;
  settings.worker.served_model_name = absl::GetFlag(FLAGS_model);
  settings.worker.cpu_level = absl::GetFlag(FLAGS_cpu);
  settings.worker.threads = absl::GetFlag(FLAGS_threads);
  settings.worker.context_tokens = absl::GetFlag(FLAGS_context_tokens);
  settings.worker.block_tokens = absl::GetFlag(FLAGS_block_tokens);
  settings.worker.chunk_tokens = absl::GetFlag(FLAGS_chunk_tokens);
  settings.worker.arena_bytes = absl::GetFlag(FLAGS_arena_bytes);
  settings.worker.cache_folder = worker::DefaultCacheFolder();
  ASSIGN_OR_RETURN(settings.worker.kv_type, worker::ParseKvType(absl::GetFlag(FLAGS_kv_dtype)));
  return settings;
}

absl::Status Run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words.front();
  const std::string rest =
      words.empty() ? "" : absl::StrJoin(words.begin() + 1, words.end(), " ");
  if (command == "serve") {
    if (words.size() != 2) return absl::InvalidArgumentError("serve takes one model file");
    ASSIGN_OR_RETURN(const ServeSettings settings, ServeSettingsFromFlags(rest));
    return RunServe(settings);
  }
  InferenceClient client(absl::GetFlag(FLAGS_router));
  const std::string prompt = absl::GetFlag(FLAGS_prompt);
  if (command == "chat") {
    return RunChat(client, {.prompt = prompt.empty() ? rest : prompt,
                            .system = absl::GetFlag(FLAGS_system),
                            .options = OptionsFromFlags()});
  }
  if (command == "generate") {
    return RunGenerate(client, prompt.empty() ? rest : prompt, OptionsFromFlags());
  }
  if (command == "tokenize") {
    return RunTokenize(client, prompt.empty() ? rest : prompt, absl::GetFlag(FLAGS_parse_special));
  }
  if (command == "models") return RunModels(client);
  if (command == "status") return RunStatus(client);
  return absl::InvalidArgumentError(
      absl::StrCat("command is '", command, "', must be chat, generate, tokenize, models, status or serve"));
}

}  // namespace
}  // namespace baton::tools

int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // serve's threads must not take the signals that end it.
  baton::base::BlockTerminationSignals();
  absl::SetProgramUsageMessage(baton::tools::kUsage);
  absl::FlagsUsageConfig usage;
  usage.version_string = [] { return std::string("baton " BATON_VERSION "\n"); };
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::StrContains(file, "tools/baton/main.cc");
  };
  absl::SetFlagsUsageConfig(usage);
  const std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  const std::vector<std::string> words(positional.begin() + 1, positional.end());
  if (words.empty() || words.front() != "serve") baton::base::RestoreTerminationSignals();
  const absl::Status status = baton::tools::Run(words);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton: %s\n", status.ToString().c_str());
  return 1;
}
