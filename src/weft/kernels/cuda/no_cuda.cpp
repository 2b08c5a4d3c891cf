// The cuda table of a build without CUDA: says what to do instead.
#include "weft/kernels/without_cudnn.h"

namespace weft {

const Kernels& cuda_kernels() {
  throw Error(
      "this program was built without CUDA: configure it with `cmake --preset cuda` on a machine with the CUDA "
      "toolkit, "
      "or choose the cpu backend");
}

bool has_cudnn() { return false; }

const Kernels& cuda_kernels_without_cudnn() { return cuda_kernels(); }

}  // namespace weft
