// Hosts: --hosts a:8,b:8 becomes mpirun --host a:8,b:8.
#include "hosts.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <fstream>

#include "weft/base/child_process.h"
#include "weft/base/error.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::app {
namespace {

// The processes that "a:8,b:8" has room for; a host without a number has one.
int count_places(const std::string& hosts) {
  int64_t places = 0;
  for (const std::string& host : CLI::detail::split(hosts, ',')) {
    const size_t colon = host.rfind(':');
    int count = 1;
    const char* const begin = host.data() + colon + 1;
    const char* const end = host.data() + host.size();
    const auto read_count = [&] {
      const auto [stop, error] = std::from_chars(begin, end, count);
      return error == std::errc() && stop == end;
    };
    const bool is_number = colon == host.npos || read_count();
    if (host.empty() || colon == 0 || !is_number || count < 1 || count > (1 << 16))
      throw UsageError("--hosts {}: write host:ranks,host:ranks, as in --hosts node1:8,node2:8", hosts);
    places += count;
  }
  if (places > (1 << 24)) throw UsageError("--hosts {}: that are too many ranks", hosts);
  return int(places);
}

// The words of this process's command line but for the program, and those that say where it runs.
std::vector<std::string> own_words() {
  std::ifstream line("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  std::string word;
  std::getline(line, word, '\0');  // the program
  while (std::getline(line, word, '\0')) {
    if (word == "--hosts" || word == "--hostfile")
      std::getline(line, word, '\0');
    else if (!word.starts_with("--hosts=") && !word.starts_with("--hostfile="))
      words.push_back(word);
  }
  return words;
}

}  // namespace

void Hosts::add_to(CLI::App& command) {
  auto* hosts = command.add_option("--hosts", hosts_, "Start the ranks on these machines: a:8,b:8");
  command.add_option("--hostfile", hostfile_, "The same, from a file of MPI's launcher")->excludes(hosts);
}

std::vector<std::string> Hosts::launch(int num_ranks, const std::vector<std::string>& command) const {
  std::vector<std::string> words{"mpirun", "-n", std::to_string(num_ranks), "--bind-to", "none"};
  if (!hosts_.empty()) {
    const int places = count_places(hosts_);
    if (places != num_ranks)
      throw UsageError("--hosts {} has room for {} ranks, the mesh has {}: make them equal", hosts_, places,
                       num_ranks);
    words.insert(words.end(), {"--host", hosts_});
  } else {
    words.insert(words.end(), {"--hostfile", hostfile_});
  }
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

void Hosts::run_own_command(int num_ranks) const {
  if (launched_by_mpi())
    throw UsageError("--hosts and --hostfile are for weft itself, which then starts mpirun: leave mpirun out");
  std::vector<std::string> command = own_words();
  command.insert(command.begin(), own_program());
  ChildProcess launcher(launch(num_ranks, command));
  static std::atomic<int> num_signals{0};
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { ++num_signals; });
  std::optional<ExitStatus> status;
  for (int told = 0; !status; status = launcher.wait(std::chrono::milliseconds(50))) {
    if (told == num_signals) continue;
    if (++told == 1)
      ::kill(launcher.pid(), kStopRanks);
    else
      launcher.signal(SIGTERM);
  }
  if (status->is_success()) return;
  if (status->code == 2) throw UsageError("the ranks refused the command, as said above");
  throw Error("the job on {} ended with {}", hosts_.empty() ? hostfile_ : hosts_, status->describe());
}

}  // namespace weft::app
