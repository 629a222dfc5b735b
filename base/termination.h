// SIGTERM and SIGINT as something main() can wait for.
#pragma once

#include "absl/time/time.h"

namespace baton::base {

// Blocks the two signals in this thread and all it starts later: call first in main(), before any thread exists.
void BlockTerminationSignals();

// Waits until one of them arrives; returns its number.
int WaitForTermination();

// From now on a second signal ends the process at once.
void RestoreTerminationSignals();

}  // namespace baton::base
