// machine_ranks: this kind of hardware again, as a machine whose cores and memory some ranks share.
#pragma once
#include <optional>

#include "weft/base/error.h"
#include "weft/plan/hardware.h"

namespace weft::plan {

// base: of which a device is a rank of base.cores cores, as of cpu-node. The machine has `cores` of these, and
// `memory_bytes` for its ranks together; each gets as much of everything.
Cluster machine_ranks(const Hardware& base, int cores, double memory_bytes, int num_ranks);

template <class Candidate>
struct RanksChoice {
  std::optional<Candidate> best, fewest;  // the quickest; of the fewest ranks that can do it. Nothing: none can
};

// Tries 1, 2, 4, ... ranks that share a machine. search_on(Cluster): its candidates, the best first; UsageError where
// so many ranks cannot cut the work. seconds_of(candidate): what is compared.
template <class SearchOn, class SecondsOf>
auto choose_ranks(int cores, double memory_bytes, const SearchOn& search_on, const SecondsOf& seconds_of) {
  const Hardware base = find_hardware("cpu-node");
  using Ranked = decltype(search_on(Cluster{}));
  RanksChoice<typename Ranked::value_type> choice;
  for (int ranks = 1; ranks <= cores; ranks *= 2) {
    Ranked ranked;
    try {
      ranked = search_on(machine_ranks(base, cores, memory_bytes, ranks));
    } catch (const UsageError&) {
      continue;
    }
    if (ranked.empty()) continue;
    if (!choice.fewest) choice.fewest = ranked.front();
    if (!choice.best || seconds_of(ranked.front()) < seconds_of(*choice.best)) choice.best = ranked.front();
  }
  return choice;
}

}  // namespace weft::plan
