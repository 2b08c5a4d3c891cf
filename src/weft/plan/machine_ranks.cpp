// machine_ranks: shares of a machine.
#include "weft/plan/machine_ranks.h"

#include <algorithm>

namespace weft::plan {

Cluster machine_ranks(const Hardware& base, int cores, double memory_bytes, int num_ranks) {
  Cluster c{.hardware = base, .num_devices = num_ranks};
  Hardware& h = c.hardware;
  h.name = "this machine";
  h.cores = std::max(1, cores / num_ranks);
  const double share = double(h.cores) / base.cores;
  h.memory_bytes = memory_bytes / num_ranks, h.reserved_bytes = 0;
  h.memory_bytes_per_s *= share;
  for (double& peak : h.peak_flops) peak *= share;
  h.node.bytes_per_s *= share;
  h.devices_per_node = num_ranks;
  return c;
}

}  // namespace weft::plan
