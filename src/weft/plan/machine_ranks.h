// machine_ranks: this kind of hardware again, as a machine whose cores and memory some ranks share.
#pragma once
#include "weft/plan/hardware.h"

namespace weft::plan {

// base: of which a device is a rank of base.cores cores, as of cpu-node. The machine has `cores` of these, and
// `memory_bytes` for its ranks together; each gets as much of everything.
Cluster machine_ranks(const Hardware& base, int cores, double memory_bytes, int num_ranks);

}  // namespace weft::plan
