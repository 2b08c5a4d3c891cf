// Peak: what this machine's cores reach at best, measured: the denominators of every efficiency.
#pragma once
#include "weft/base/thread_team.h"
#include "weft/tensor/allocator.h"

namespace weft::cpu {

// FLOP/s (a multiplication and an addition are two) of all threads of the team on independent fused multiply-adds in
// registers: f32, which f16 is computed in, or for bf16 the dot product with f32 sums where the machine has one and
// f32 otherwise. About 0.1 s.
double measure_peak_flops(ThreadTeam& team, DType type);

// 256 MiB, which is far more than the caches hold, for a team's threads to read together.
class ReadProbe {
 public:
  explicit ReadProbe(ThreadTeam& team);
  double pass();  // bytes/s of reading it once: some milliseconds

 private:
  ThreadTeam& team_;
  Allocator memory_;  // which asks for huge pages
  Tensor words_;
  int64_t ahead_ = 0;  // words fetched before their turn: as many as make it fastest here
};

// The most of some passes. About 0.2 s.
double measure_read_bandwidth(ThreadTeam& team);

}  // namespace weft::cpu
