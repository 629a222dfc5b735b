// baton-prefill-worker: the model of a file, and a prefill worker on it.

#include "prefill_worker/prefill_worker.h"
#include "worker/worker_process.h"

int main(int argc, char** argv) {
  const baton::worker::WorkerProgram program{
      .name = "baton-prefill-worker",
      .summary = "Baton's prefill worker: computes prompts and hands their KV blocks to decode workers.",
      .role = baton::worker::WorkerRole::kPrefill,
      .start = [](const auto& config, const auto& model, auto& metrics) {
        return baton::prefill_worker::PrefillWorker::Start(config, model, metrics, /*loopback=*/nullptr);
      }};
  return baton::worker::WorkerMain(program, argc, argv);
}
