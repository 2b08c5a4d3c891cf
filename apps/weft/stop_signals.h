// StopSignals: what asks a server to stop, taken by one thread that waits for it.
#pragma once
#include <thread>

namespace weft::app {

// SIGTERM, SIGINT and what --hosts makes of them. Made before the program's other threads, which hear none of them
// from then on.
class StopSignals {
 public:
  StopSignals();
  // The signal that came; 0 when it was wake().
  int wait() const;
  // Ends the wait of a thread without a signal from outside.
  static void wake(std::thread& thread);
  // On the thread that waited: one more ends the program at once.
  void let_through() const;
  // Ends the program as if nobody had waited for this signal.
  [[noreturn]] static void end_program_by(int signal);
};

}  // namespace weft::app
