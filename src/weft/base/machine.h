// Machine: what this computer has: cores, caches, memory, instruction sets, accelerators.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct Machine {
  std::string host, cpu;  // "AMD EPYC 9965"
  int packages = 0, numa_nodes = 0, cores = 0;
  int usable_threads = 0;                             // that this process may run on
  int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // of one cache
  int64_t memory_bytes = 0, available_bytes = 0;
  std::vector<std::string>
      isa;  // of those weft uses: "avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", ...
  std::vector<std::string> gpus;  // as the driver names them
};

Machine describe_machine();

// Hardware threads that this process may run on, at least one; asks only for this.
int usable_cores();

}  // namespace weft
