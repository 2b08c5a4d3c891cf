// StopSignals: blocked everywhere, then waited for.
#include "stop_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>

#include "hosts.h"

namespace weft::app {
namespace {

constexpr int kWake = SIGUSR1;

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}
sigset_t from_outside() { return set_of({SIGTERM, SIGINT, kStopRanks}); }
sigset_t waited_for() { return set_of({SIGTERM, SIGINT, kStopRanks, kWake}); }

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = waited_for();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int StopSignals::wait() const {
  const sigset_t set = waited_for();
  int got = 0;
  ::sigwait(&set, &got);
  return got == kWake ? 0 : got;
}

void StopSignals::wake(std::thread& thread) { ::pthread_kill(thread.native_handle(), kWake); }

void StopSignals::let_through() const {
  const sigset_t set = from_outside();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void StopSignals::end_program_by(int signal) {
  const sigset_t set = set_of({signal});
  ::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace weft::app
