// Attention's fused plans of a build without cuDNN: none.
#include "weft/kernels/cuda/fused_plan.h"

namespace weft::cuda {

std::shared_ptr<const FusedPlan> make_fused_plan(const FusedKey&) { return nullptr; }

bool has_fused_plans() { return false; }

}  // namespace weft::cuda
