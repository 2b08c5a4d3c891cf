// RankResources: what memory there is, and names of dtypes.
#include "rank_resources.h"

#include <algorithm>

#include "weft/base/ceil_div.h"
#include "weft/base/machine.h"

namespace weft::app {

int64_t available_bytes(Device device, int ranks, int64_t limit, int first_rank) {
  const auto limited = [limit](int64_t free) { return limit > 0 ? std::min(free, limit) : free; };
  if (device == Device::cpu) return limited(describe_machine().available_bytes);
  int64_t least = cuda_device_of(first_rank).free_bytes;  // others may be full of what is there already
  const int devices = num_cuda_devices(), used = std::min(ranks, devices);
  for (int r = first_rank + 1; r < first_rank + used; ++r) least = std::min(least, cuda_device_of(r).free_bytes);
  return limited(least) / ceil_div(ranks, devices) * ranks;
}

std::optional<DType> dtype_named(std::string_view name) {
  if (name == "fp32" || name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  if (name == "fp16" || name == "f16") return DType::f16;
  return {};
}

DType parse_dtype(const std::string& name) {
  if (const auto dtype = dtype_named(name)) return *dtype;
  throw UsageError("--dtype {}: write fp32, bf16 or fp16", name);
}

Device parse_device(const std::string& name) {
  if (name == "cpu") return Device::cpu;
  if (name == "cuda") return Device::cuda;
  throw UsageError("--device {}: write cpu or cuda", name);
}

}  // namespace weft::app
