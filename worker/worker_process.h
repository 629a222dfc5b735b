// What the main programs of both workers share: command line, log, metrics, signals, and the order they come in.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/metrics.h"
#include "worker/worker.h"
#include "worker/worker_config.h"
#include "worker/worker_model.h"

namespace baton::worker {

struct WorkerProgram {
  std::string name;     // "baton-prefill-worker"
  std::string summary;  // For --help.
  WorkerRole role = WorkerRole::kPrefill;
  std::function<absl::StatusOr<std::unique_ptr<Worker>>(const WorkerConfig&, const WorkerModel&,
                                                        base::Metrics&)>
      start;
};

// First in main(), before any thread exists: signals, --help, --version, flags.
void ParseCommandLine(const WorkerProgram& program, int argc, char** argv);

// Starts the worker on `model`, prints one line to stdout for scripts to wait for,
//
//   baton-prefill-worker ready service=127.0.0.1:40001 metrics=127.0.0.1:9401
//
// waits for SIGTERM or SIGINT, and drains.
absl::Status ServeUntilTerminated(const WorkerProgram& program, const WorkerConfig& config,
                                  const WorkerModel& model);

// The whole of main() for a worker on a model file. Returns the exit code.
int WorkerMain(const WorkerProgram& program, int argc, char** argv);

// Prints an error to stderr, if it is one; the exit code.
int ExitWith(const WorkerProgram& program, const absl::Status& status);

// Logging, niceness and every setting that took effect. Before the model is loaded: its threads inherit the niceness.
absl::Status PrepareProcess(const WorkerProgram& program, const WorkerConfig& config);

}  // namespace baton::worker
