// baton-decode-worker: the model of a file, and a decode worker on it.

#include "decode_worker/decode_worker.h"
#include "worker/worker_process.h"

int main(int argc, char** argv) {
  const baton::worker::WorkerProgram program{
      .name = "baton-decode-worker",
      .summary = "Baton's decode worker: takes over prefilled sequences and generates their tokens.",
      .role = baton::worker::WorkerRole::kDecode,
      .start = [](const auto& config, const auto& model, auto& metrics) {
        return baton::decode_worker::DecodeWorker::Start(config, model, metrics, /*loopback=*/nullptr);
      }};
  return baton::worker::WorkerMain(program, argc, argv);
}
