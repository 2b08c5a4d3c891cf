// Hosts: the machines on which weft starts a job by itself, through MPI's launcher.
#pragma once
#include <CLI/CLI.hpp>
#include <csignal>
#include <string>
#include <vector>

namespace weft::app {

// What asks a rank to stop that MPI's launcher started: Open MPI passes it on, while SIGTERM and SIGINT make it kill.
inline constexpr int kStopRanks = SIGUSR2;

class Hosts {
 public:
  void add_to(CLI::App& command);
  bool are_given() const { return !hosts_.empty() || !hostfile_.empty(); }
  // The launcher's words before `command`, which runs as `num_ranks` processes. Throws UsageError when --hosts names
  // another number of places.
  std::vector<std::string> launch(int num_ranks, const std::vector<std::string>& command) const;
  // Runs this process's own command on these machines, to its end. The first SIGTERM or SIGINT reaches every rank as
  // kStopRanks, since launchers do not pass these on but kill; the second one ends the launcher. Throws UsageError as
  // launch() does, and for a rank of a launcher; Error when the job fails.
  void run_own_command(int num_ranks) const;

 private:
  std::string hosts_, hostfile_;
};

}  // namespace weft::app
