// What this program's kernels were compiled for.
#include "weft/kernels/cuda/early_start.h"

#include "weft/kernels/cuda/launch.h"
#include "weft/kernels/cuda/per_device.h"

namespace weft::cuda {
namespace {

constexpr int kLeast = 90;

__global__ void probe_kernel() {}

struct Compiled {
  bool do_kernels_wait = false;

  Compiled() {
    cudaFuncAttributes probe{};
    check_cuda(cudaFuncGetAttributes(&probe, probe_kernel), "tell what its kernels were compiled for");
    do_kernels_wait = probe.ptxVersion >= kLeast;
  }
};

}  // namespace

bool can_start_early() { return compute_capability() >= kLeast && of_this_device<Compiled>().do_kernels_wait; }

}  // namespace weft::cuda
