// ChildProcess: another program, run as a process group of its own.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
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
  // Where its standard input and output are: those of this process, or here.
  enum class Pipes : uint8_t { none, to_and_from };
  // Looks the program up in PATH. The child is asked to end when this process dies, however it does. Throws Error
  // when the program cannot be run.
  explicit ChildProcess(const std::vector<std::string>& command, Pipes pipes = Pipes::none);
  // Kills the group if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Nothing while it runs on for `at_most`.
  std::optional<ExitStatus> wait(std::chrono::milliseconds at_most);
  void signal(int number) noexcept;  // to the whole group
  pid_t pid() const { return pid_; }
  // With pipes: a socket that it reads, so that writing to a program that has ended raises no signal, and a pipe that
  // it writes.
  int input() const { return input_; }
  int output() const { return output_; }

 private:
  void close_pipes() noexcept;

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  std::optional<ExitStatus> status_;
};

// The file of the program that runs, for starting it again.
std::string own_program();

}  // namespace weft
