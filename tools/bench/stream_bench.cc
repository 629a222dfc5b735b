// Streams through a running cluster: N requests started together, repeated. Prints one JSON object:
//
//   {"streams": 64, "tokens_per_second": 3180.2, "total_tokens_per_second": …, "ttft_ms_p50": …, "ttft_ms_p99": …,
//    "gap_ms_p50": …, "gap_ms_p99": …}
//
// tokens_per_second counts generated tokens, total_… prompt tokens too. Times are the client's own.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "tools/bench/stream_load_client.h"

ABSL_FLAG(std::string, router, "127.0.0.1:50051", "host:port of the router's client port");
ABSL_FLAG(uint32_t, streams, 1, "requests started together, [1, 4096]");
ABSL_FLAG(uint32_t, input, 128, "prompt tokens of each");
ABSL_FLAG(uint32_t, output, 64, "tokens to generate of each");
ABSL_FLAG(uint32_t, repeats, 1, "how often, one after the other");

namespace baton::tools {
namespace {

double Percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1) + 0.5)];
}

absl::Status Run() {
  StreamLoad load = {.router = absl::GetFlag(FLAGS_router),
                     .streams = absl::GetFlag(FLAGS_streams),
                     .input_tokens = absl::GetFlag(FLAGS_input),
                     .output_tokens = absl::GetFlag(FLAGS_output)};
  if (load.streams < 1 || load.streams > 4096) {
    return absl::InvalidArgumentError("streams must be in [1, 4096]");
  }
  ASSIGN_OR_RETURN(load.vocabulary_size, VocabularySize(load.router));
  std::vector<double> first, gaps;
  double seconds = 0;
  const uint32_t repeats = absl::GetFlag(FLAGS_repeats);
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    load.seed = repeat + 1;
    ASSIGN_OR_RETURN(const std::vector<StreamTimes> streams, RunStreams(load));
    absl::Duration longest;
    for (const StreamTimes& stream : streams) {
      first.push_back(absl::ToDoubleMilliseconds(stream.first_token));
      for (const absl::Duration gap : stream.gaps) gaps.push_back(absl::ToDoubleMilliseconds(gap));
      longest = std::max(longest, stream.total);
    }
    seconds += absl::ToDoubleSeconds(longest);
  }
  const double requests = static_cast<double>(repeats) * load.streams;
  std::printf(
      "{\"streams\": %u, \"tokens_per_second\": %.1f, \"total_tokens_per_second\": %.1f, "
      "\"ttft_ms_p50\": %.2f, \"ttft_ms_p99\": %.2f, \"gap_ms_p50\": %.2f, \"gap_ms_p99\": %.2f}\n",
      load.streams, requests * load.output_tokens / seconds,
      requests * (load.input_tokens + load.output_tokens) / seconds, Percentile(first, 0.5),
      Percentile(first, 0.99), Percentile(gaps, 0.5), Percentile(gaps, 0.99));
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::tools

int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  absl::SetProgramUsageMessage("streams through a running cluster and prints their times as JSON.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::tools::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "stream_bench: %s\n", status.ToString().c_str());
  return 1;
}
