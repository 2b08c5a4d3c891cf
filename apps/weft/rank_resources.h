// RankResources: what one rank of a command computes with: a device, threads, memory, a stream.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "weft/autograd/context.h"
#include "weft/base/machine.h"
#include "weft/tensor/cuda/cuda_device.h"

namespace weft::app {

struct RankResources {
  // threads: 0 takes all cores. The calling thread's device is that of the rank from now on.
  explicit RankResources(int threads = 0, Device device = Device::cpu, int rank = 0)
      : team(threads > 0 ? threads : usable_cores()),
        allocator(chosen(device, rank)),
        stream(team, allocator),
        context{kernels_of(device), stream} {}

  ThreadTeam team;
  Allocator allocator;
  Stream stream;
  Context context;

 private:
  static Device chosen(Device device, int rank) {
    if (device == Device::cuda) use_cuda_device(rank);
    return device;
  }
};

// Free bytes for `ranks` ranks together: of this machine's main memory, or of the devices that they take in turn
// from the first rank's on; of either no more than `limit`, if there is one. Throws Error saying what is missing
// where there is no such device.
int64_t available_bytes(Device device, int ranks, int64_t limit = 0, int first_rank = 0);

// "fp32", "bf16" or "fp16"; nothing for other names.
std::optional<DType> dtype_named(std::string_view name);
// The same; throws UsageError naming --dtype.
DType parse_dtype(const std::string& name);

// "cpu" or "cuda"; throws UsageError naming --device.
Device parse_device(const std::string& name);

}  // namespace weft::app
