// RankResources: what memory there is, and names of dtypes.
#include "rank_resources.h"

#include <algorithm>

#include "weft/base/ceil_div.h"
#include "weft/base/machine.h"

namespace weft::app {

int64_t available_bytes(Device device, int ranks, int64_t limit, int first_rank) {
  const auto limited = [limit](int64_t free) { return limit > 0 ? std::min(free, limit) : free; };
  if (device == Device::cpu) return limited(describe_machine().available_bytes);
  std::string why;
  const std::vector<CudaDevice> devices = cuda_devices(&why);
  if (devices.empty()) throw Error("{}", why.empty() ? "this machine has no CUDA device" : why);
  int64_t least = INT64_MAX;  // others may be full of what is there already
  for (int r = first_rank; r < first_rank + ranks; ++r)
    least = std::min(least, devices[size_t(r) % devices.size()].free_bytes);
  return limited(least) / ceil_div(ranks, int(devices.size())) * ranks;
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
