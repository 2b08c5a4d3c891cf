// RankResources: what one rank of a command computes with: threads, memory, a stream, the cpu kernels.
#pragma once
#include <string>

#include "weft/autograd/context.h"

namespace weft::app {

int num_cores();  // that this process may use

struct RankResources {
  // threads: 0 takes all cores.
  explicit RankResources(int threads = 0, const Kernels& kernels = cpu_kernels())
      : team(threads > 0 ? threads : num_cores()), stream(team, allocator), context{kernels, stream} {}

  ThreadTeam team;
  Allocator allocator;
  Stream stream;
  Context context;
};

// "fp32", "bf16" or "fp16"; throws UsageError naming --dtype.
DType parse_dtype(const std::string& name);

}  // namespace weft::app
