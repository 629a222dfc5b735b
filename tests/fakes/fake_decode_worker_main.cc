// baton-fake-decode-worker: a decode worker whose model only hashes.

#include "decode_worker/decode_worker.h"
#include "tests/fakes/fake_worker.h"

int main(int argc, char** argv) {
  const baton::worker::WorkerProgram program{
      .name = "baton-fake-decode-worker",
      .summary = "A decode worker on a fake, paced model, for tests.",
      .role = baton::worker::WorkerRole::kDecode,
      .start = [](const auto& config, const auto& model, auto& metrics) {
        return baton::decode_worker::DecodeWorker::Start(config, model, metrics, /*loopback=*/nullptr);
      }};
  return baton::fakes::FakeWorkerMain(program, argc, argv);
}
