// supervise: watch, note why it ended, pause, run again.
#include "weft/train/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "weft/checkpoint/checkpoint_store.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kUsageError = 2;
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kGrace{60};          // for the step under way and its checkpoint, after a signal
constexpr std::chrono::seconds kLauncherGrace{10};  // to end the ranks and itself

// The newest checkpoint's path; empty when there is none.
std::string newest_in(const std::string& folder) {
  if (folder.empty()) return {};
  const std::vector<std::string> paths = CheckpointStore(folder).list();
  return paths.empty() ? std::string() : paths.front();
}

// Tells whether a file changes.
class FileWatch {
 public:
  explicit FileWatch(std::string path) : path_(std::move(path)), last_(look()) {}
  bool has_changed() {
    const auto now = look();
    return std::exchange(last_, now) != now;
  }

 private:
  std::array<int64_t, 4> look() const {
    struct stat info {};
    if (::stat(path_.c_str(), &info) != 0) return {};
    return {int64_t(info.st_ino), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  }
  std::string path_;
  std::array<int64_t, 4> last_;
};

struct Ended {
  ExitStatus status;
  std::string reason;
  bool was_asked = false;  // to stop
};

void ask_to_stop(ChildProcess& job, int number, const SupervisorOptions& o) {
  if (o.launcher_passes_on == 0) return job.signal(number);
  ::kill(job.pid(), o.launcher_passes_on);
}

// A launcher ends its ranks, also those that are stopped and those of other machines; they would outlive it, and keep
// the run's folders, if it was killed.
void end_at_once(ChildProcess& job, const SupervisorOptions& o) {
  if (o.launcher_passes_on != 0) {
    job.signal(SIGTERM);
    if (job.wait(kLauncherGrace)) return;
  }
  job.signal(SIGKILL);
  while (!job.wait(kLook)) {
  }
}

Ended run_once(const std::vector<std::string>& command, const SupervisorOptions& o) {
  FileWatch metrics(join_path(o.log_dir, "metrics.jsonl"));  // before the job, which may write at once
  ChildProcess job(command);
  std::optional<Clock::time_point> last_step;
  bool was_asked = false;
  for (;;) {
    if (const auto status = job.wait(kLook)) return {*status, status->describe(), was_asked};
    const auto now = Clock::now();
    if (metrics.has_changed()) last_step = now;
    if (const int number = o.stop_signal ? o.stop_signal->load() : 0; number != 0 && !was_asked) {
      was_asked = true;
      ask_to_stop(job, number, o);
      if (!job.wait(kGrace)) end_at_once(job, o);
      continue;
    }
    if (o.hang_after_s <= 0 || !last_step) continue;
    if (std::chrono::duration<double>(now - *last_step).count() < o.hang_after_s) continue;
    end_at_once(job, o);
    return {{.signal = SIGKILL}, fmt::format("hung: no step was completed for {:g} s", o.hang_after_s), false};
  }
}

// One line, whole, at the end of the file.
void note_restart(const SupervisorOptions& o, int number, const std::string& reason, const std::string& from) {
  const nlohmann::json line{{"time", int64_t(std::time(nullptr))},
                            {"restart", number},
                            {"reason", reason},
                            {"checkpoint", from.empty() ? nlohmann::json() : nlohmann::json(from)}};
  const std::string text = line.dump() + "\n", path = join_path(o.log_dir, "restarts.jsonl");
  make_folders(FileSystem::real(), o.log_dir);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const bool is_written = fd >= 0 && ::write(fd, text.data(), text.size()) == ssize_t(text.size());
  if (fd >= 0) ::close(fd);
  if (!is_written) fmt::print(stderr, "weft: {} could not be written: the run goes on without it\n", path);
}

void pause(double seconds, const SupervisorOptions& o) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < until && !(o.stop_signal && o.stop_signal->load() != 0)) std::this_thread::sleep_for(kLook);
}

}  // namespace

ExitStatus supervise(const std::vector<std::string>& command, const std::vector<std::string>& again,
                     const SupervisorOptions& o) {
  std::vector<std::string> line = command;
  std::string newest = newest_in(o.checkpoint_dir);
  int in_vain = 0;
  for (int restart = 1;; ++restart) {
    const Ended ended = run_once(line, o);
    if (ended.status.is_success() || ended.was_asked || ended.status.code == kUsageError) return ended.status;
    const std::string now = newest_in(o.checkpoint_dir);
    in_vain = now == newest ? in_vain + 1 : 0;
    newest = now;
    if (restart > o.restarts) {
      fmt::print(stderr, "weft: the job ended ({}) and all {} restarts are used\n", ended.reason, o.restarts);
      return ended.status;
    }
    if (in_vain >= o.give_up_after) {
      fmt::print(stderr, "weft: gave up: the job ended {} times in a row without a new checkpoint, last with {}\n",
                 in_vain, ended.reason);
      return ended.status;
    }
    note_restart(o, restart, ended.reason, newest);
    fmt::print(stderr, "weft: the job ended ({}); restart {} of {} from {}\n", ended.reason, restart, o.restarts,
               newest.empty() ? "the beginning" : newest);
    pause(std::min(o.longest_pause_s, o.first_pause_s * std::exp2(in_vain)), o);
    if (restart == 1) line.insert(line.end(), again.begin(), again.end());
    if (o.stop_signal && o.stop_signal->load() != 0) return ended.status;
  }
}

}  // namespace weft
