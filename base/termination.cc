#include "base/termination.h"

#include <signal.h>

#include "base/check.h"

namespace baton::base {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  signal(SIGPIPE, SIG_IGN);
}

int WaitForTermination() {
  const sigset_t signals = TerminationSignals();
  int signal_number = 0;
  CHECK(sigwait(&signals, &signal_number) == 0);
  return signal_number;
}

void RestoreTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, nullptr) == 0);
}

}  // namespace baton::base
