// RankResources: how many cores there are, and names of dtypes.
#include "rank_resources.h"

#include "weft/train/launch.h"

namespace weft::app {

int num_cores() { return usable_cores(); }

DType parse_dtype(const std::string& name) {
  if (name == "fp32" || name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  if (name == "fp16" || name == "f16") return DType::f16;
  throw UsageError("--dtype {}: write fp32, bf16 or fp16", name);
}

}  // namespace weft::app
