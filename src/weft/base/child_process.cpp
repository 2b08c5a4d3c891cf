// ChildProcess: fork, exec, and a pipe that tells when exec fails.
#include "weft/base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>
#include <utility>

#include "weft/base/error.h"

namespace weft {

std::string ExitStatus::describe() const {
  if (signal == 0) return fmt::format("exit status {}", code);
  return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
}

ChildProcess::ChildProcess(const std::vector<std::string>& command, Pipes pipes) {
  check(!command.empty(), "a command has at least one word");
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> failure;  // closed by a successful exec
  if (::pipe2(failure.data(), O_CLOEXEC) != 0) throw Error("cannot make a pipe: {}", std::strerror(errno));

  std::array<int, 2> in = {-1, -1}, out = {-1, -1};  // the child's ends are in[1] and out[1]
  if (pipes == Pipes::to_and_from) {
    const bool has_in = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) == 0;
    const bool has_out = has_in && ::pipe2(out.data(), O_CLOEXEC) == 0;
    const int pipe_error = errno;
    if (!has_out) {
      for (const int fd : {failure[0], failure[1], in[0], in[1]})
        if (fd >= 0) ::close(fd);
      throw Error("cannot make a pipe: {}", std::strerror(pipe_error));
    }
    input_ = in[0], output_ = out[0];
  }

  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    if (input_ >= 0) ::dup2(in[1], STDIN_FILENO), ::dup2(out[1], STDOUT_FILENO);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::execvp(words[0], words.data());
    const int error = errno;
    [[maybe_unused]] const auto told = ::write(failure[1], &error, sizeof error);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(failure[1]);
  for (const int fd : {in[1], out[1]})
    if (fd >= 0) ::close(fd);
  int error = 0;
  const bool has_failed = pid_ > 0 && ::read(failure[0], &error, sizeof error) == ssize_t(sizeof error);
  ::close(failure[0]);
  if (pid_ > 0 && !has_failed) return;
  close_pipes();
  if (pid_ < 0) throw Error("cannot start a process: {}", std::strerror(fork_error));
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  throw Error("cannot run {}: {}", command[0], std::strerror(error));
}

void ChildProcess::close_pipes() noexcept {
  for (int* fd : {&input_, &output_})
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
}

ChildProcess::~ChildProcess() {
  close_pipes();
  if (pid_ < 0 || status_) return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<ExitStatus> ChildProcess::wait(std::chrono::milliseconds at_most) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  while (!status_) {
    int raw = 0;
    if (::waitpid(pid_, &raw, WNOHANG) == pid_) {
      status_ = WIFSIGNALED(raw) ? ExitStatus{.signal = WTERMSIG(raw)} : ExitStatus{.code = WEXITSTATUS(raw)};
    } else if (std::chrono::steady_clock::now() >= until) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return status_;
}

void ChildProcess::signal(int number) noexcept {
  if (pid_ > 0 && !status_) ::kill(-pid_, number);
}

std::string own_program() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) throw Error("cannot find the file of this program: {}", std::strerror(errno));
  return {path.data(), size_t(size)};
}

}  // namespace weft
