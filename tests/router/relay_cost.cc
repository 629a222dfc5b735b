// Prints what a router costs: CPU time a token, with streams paced as a decode worker paces them.
//
//   relay_cost STREAMS [STEP_MS [TOKENS]]
//
// The router runs alone in this process, so that getrusage() is its own; fake workers and clients
// run in a child. Not a test: a figure that depends on the machine proves nothing in a test run.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/grpc_server.h"
#include "base/log.h"
#include "router/router.h"
#include "tests/router/fake_text.h"
#include "tests/router/fake_worker.h"

namespace baton::router {
namespace {

struct Load {
  int streams = 64;
  int step_ms = 20;
  int tokens = 200;  // Of each stream.
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string ReadLine(int fd) {
  std::string line;
  for (char c; read(fd, &c, 1) == 1 && c != '\n';) line.push_back(c);
  return line;
}

void WriteLine(int fd, const std::string& line) {
  const std::string with_end = line + "\n";
  CHECK(write(fd, with_end.data(), with_end.size()) == static_cast<ssize_t>(with_end.size()));
}

void ReadStream(v1::InferenceService::Stub& stub, int tokens) {
  grpc::ClientContext context;
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.mutable_stop_conditions()->set_max_tokens(tokens);
  request.mutable_stop_conditions()->add_stop("no such text");
  const auto reader = stub.Generate(&context, request);
  v1::GenerateResponse piece;
  int received = 0;
  while (reader->Read(&piece)) received += piece.token_ids_size();
  const grpc::Status status = reader->Finish();
  CHECK(status.ok()) << status.error_message();
  CHECK_EQ(received, tokens);
}

// Workers and clients.
void RunLoad(const Load& load, int from_router, int to_router) {
  const std::string client_address = ReadLine(from_router);
  const std::string worker_address = ReadLine(from_router);
  const uint32_t streams = static_cast<uint32_t>(load.streams);
  FakeWorker prefill({}, worker_address);
  FakeWorker decode(
      {.decodes = true, .running_sequences_max = streams, .step = absl::Milliseconds(load.step_ms)},
      worker_address);
  const auto stub = v1::InferenceService::NewStub(base::OpenChannel(client_address));
  const absl::Time started = absl::Now();
  std::vector<std::thread> clients;
  for (int i = 0; i < load.streams; ++i) {
    clients.emplace_back([&] { ReadStream(*stub, load.tokens); });
  }
  for (std::thread& client : clients) client.join();
  WriteLine(to_router, absl::StrCat(absl::ToDoubleSeconds(absl::Now() - started)));
}

void RunRouter(const Load& load, int from_load, int to_load) {
  base::InitLogging("relay_cost", base::LogLevel::WARNING);
  base::Metrics metrics;
  RouterConfig config;
  config.port = 0;
  config.worker_port = 0;
  auto router = Router::Start(config, FakeModel(), metrics);
  CHECK_OK(router.status());
  const double before = CpuSeconds();
  WriteLine(to_load, (*router)->client_address());
  WriteLine(to_load, (*router)->worker_address());
  const double wall = std::atof(ReadLine(from_load).c_str());
  const double cpu = CpuSeconds() - before;
  const double tokens = static_cast<double>(load.streams) * load.tokens;
  std::printf(
      "{\"streams\": %d, \"step_ms\": %d, \"tokens\": %.0f, \"tokens_per_second\": %.0f, "
      "\"router_cpu_us_per_token\": %.2f, \"router_cpu_cores\": %.3f}\n",
      load.streams, load.step_ms, tokens, tokens / wall, cpu / tokens * 1e6, cpu / wall);
}

}  // namespace
}  // namespace baton::router

int main(int argc, char** argv) {
  using namespace baton::router;
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  Load load;
  if (argc > 1) load.streams = std::atoi(argv[1]);
  if (argc > 2) load.step_ms = std::atoi(argv[2]);
  if (argc > 3) load.tokens = std::atoi(argv[3]);
  int to_load[2], to_router[2];
  CHECK(pipe(to_load) == 0 && pipe(to_router) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    RunLoad(load, to_load[0], to_router[1]);
    return 0;
  }
  RunRouter(load, to_router[0], to_load[1]);
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}
