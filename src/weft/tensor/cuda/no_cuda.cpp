// CUDA devices of a build without CUDA: there are none.
#include "weft/base/error.h"
#include "weft/tensor/cuda/cuda_device.h"

namespace weft {
namespace {

constexpr const char* kWhy =
    "this program was built without CUDA: configure it with `cmake --preset cuda` on a machine with the CUDA "
    "toolkit, "
    "or choose the cpu device";

}  // namespace

bool has_cuda() { return false; }
int num_cuda_devices(std::string* why) {
  if (why) *why = kWhy;
  return 0;
}
std::vector<CudaDevice> cuda_devices(std::string* why) {
  num_cuda_devices(why);
  return {};
}
CudaDevice cuda_device_of(int) { throw Error(std::string(kWhy)); }
void use_cuda_device(int) { throw Error(std::string(kWhy)); }
std::byte* allocate_on_cuda(size_t) { throw Error(std::string(kWhy)); }
void free_on_cuda(std::byte*) noexcept {}
void clear_on_cuda(std::byte*, size_t) { throw Error(std::string(kWhy)); }
std::byte* allocate_pinned(size_t) { throw Error(std::string(kWhy)); }
void free_pinned(std::byte*) noexcept {}
std::unique_ptr<DeviceQueue> make_cuda_queue() { throw Error(std::string(kWhy)); }
std::unique_ptr<DeviceTimer> make_cuda_timer(DeviceQueue&) { throw Error(std::string(kWhy)); }

}  // namespace weft
