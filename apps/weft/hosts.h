// Hosts: the machines on which weft starts a job by itself, through MPI's launcher.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace weft::app {

class Hosts {
 public:
  void add_to(CLI::App& command);
  bool are_given() const { return !hosts_.empty() || !hostfile_.empty(); }
  // The launcher's words before `command`, which runs as `num_ranks` processes. Throws UsageError when --hosts names
  // another number of places.
  std::vector<std::string> launch(int num_ranks, const std::vector<std::string>& command) const;

 private:
  std::string hosts_, hostfile_;
};

}  // namespace weft::app
