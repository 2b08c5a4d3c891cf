// kernels_of: the backend of a device.
#include "weft/kernels/kernels.h"

namespace weft {

const Kernels& kernels_of(Device device) {
  switch (device) {
    case Device::cuda: return cuda_kernels();
    case Device::meta: return meta_kernels();
    case Device::cpu: break;
  }
  return cpu_kernels();
}

}  // namespace weft
