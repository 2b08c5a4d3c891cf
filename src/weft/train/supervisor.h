// supervise: keeps a training job going: runs it as a process, and again from its newest checkpoint when it dies or
// stops making steps.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "weft/base/child_process.h"

namespace weft {

struct SupervisorOptions {
  int restarts = 0;                                // at most
  int give_up_after = 3;                           // failures in a row without a new checkpoint: a crash loop
  double hang_after_s = 1800;                      // without a new line in metrics.jsonl, once there was one
  double first_pause_s = 1, longest_pause_s = 60;  // before a restart; doubled while no checkpoint is new
  std::string checkpoint_dir;
  std::string log_dir;  // metrics.jsonl is looked at; restarts.jsonl gets a line for each restart
  const std::atomic<int>* stop_signal = nullptr;  // not 0: passed on, and then the job's end is the end
  // Of a job that MPI's launcher runs: the launcher gets this instead and passes it on to the ranks, which SIGTERM
  // would make it kill. 0: no launcher.
  int launcher_passes_on = 0;
};

// command: the job, which resumes by itself. again: what is added to the command of every run but the first. Returns
// how the last run ended. A usage error (exit status 2) is never tried again.
ExitStatus supervise(const std::vector<std::string>& command, const std::vector<std::string>& again,
                     const SupervisorOptions& options);

}  // namespace weft
