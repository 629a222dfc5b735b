// baton-fake-prefill-worker: a prefill worker whose model only hashes.

#include "prefill_worker/prefill_worker.h"
#include "tests/fakes/fake_worker.h"

int main(int argc, char** argv) {
  const baton::worker::WorkerProgram program{
      .name = "baton-fake-prefill-worker",
      .summary = "A prefill worker on a fake, paced model, for tests.",
      .role = baton::worker::WorkerRole::kPrefill,
      .start = [](const auto& config, const auto& model, auto& metrics) {
        return baton::prefill_worker::PrefillWorker::Start(config, model, metrics, /*loopback=*/nullptr);
      }};
  return baton::fakes::FakeWorkerMain(program, argc, argv);
}
