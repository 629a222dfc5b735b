// Worker programs on a FakeModel: the same composition and flags as the real ones, at a speed that is asked for. --model
// still names a file, for the name, the vocabulary and the context that routers compare.
#pragma once

#include "worker/worker_process.h"

namespace baton::fakes {

int FakeWorkerMain(const worker::WorkerProgram& program, int argc, char** argv);

}  // namespace baton::fakes
