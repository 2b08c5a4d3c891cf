// Peak: what this machine's cores reach at best, measured: the denominators of every efficiency.
#pragma once
#include "weft/base/thread_team.h"
#include "weft/tensor/dtype.h"

namespace weft::cpu {

// FLOP/s (a multiplication and an addition are two) of all threads of the team on independent fused multiply-adds in
// registers: f32, which f16 is computed in, or for bf16 the dot product with f32 sums where the machine has one and
// f32 otherwise. About 0.1 s.
double measure_peak_flops(ThreadTeam& team, DType type);

// Bytes/s at which the team's threads together read memory far larger than the caches. About 0.2 s and 256 MiB.
double measure_read_bandwidth(ThreadTeam& team);

}  // namespace weft::cpu
