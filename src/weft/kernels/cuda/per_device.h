// of_this_device: what all threads of a process share about a device, made when it is first asked for.
#pragma once
#include <array>
#include <mutex>

#include "weft/tensor/cuda/check_cuda.h"

namespace weft::cuda {

// Of the calling thread's device. Lives until the process ends: the driver may be gone before destructors of static
// objects run.
template <class T>
T& of_this_device() {
  constexpr int kMostDevices = 64;
  static std::array<std::once_flag, kMostDevices> once;
  static std::array<T*, kMostDevices> all{};
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tell its device");
  check(device < kMostDevices, "device {}, but no more than {} are kept apart", device, kMostDevices);
  std::call_once(once[size_t(device)], [&] { all[size_t(device)] = new T; });
  return *all[size_t(device)];
}

}  // namespace weft::cuda
