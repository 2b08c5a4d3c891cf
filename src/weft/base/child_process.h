// ChildProcess: another program, run as a process group of its own.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// How a process ended.
struct ExitStatus {
  int code = 0;    // where it ended by itself
  int signal = 0;  // else what killed it
  bool is_success() const { return code == 0 && signal == 0; }
  std::string describe() const;  // "exit status 1", "killed by signal 9 (Killed)"
};

class ChildProcess {
 public:
  // Looks the program up in PATH; standard input and output are those of this process. The child is asked to end when
  // this process dies, however it does. Throws Error when the program cannot be run.
  explicit ChildProcess(const std::vector<std::string>& command);
  // Kills the group if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Nothing while it runs on for `at_most`.
  std::optional<ExitStatus> wait(std::chrono::milliseconds at_most);
  void signal(int number) noexcept;  // to the whole group
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<ExitStatus> status_;
};

// The file of the program that runs, for starting it again.
std::string own_program();

}  // namespace weft
