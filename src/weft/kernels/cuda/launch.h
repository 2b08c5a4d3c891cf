// launch: starts a kernel on a stream's device; what all sources of this folder include.
#pragma once
#include <cuda_runtime.h>

#include <tuple>
#include <utility>

#include "weft/kernels/cuda/early_start.h"
#include "weft/kernels/cuda/launch_shape.h"
#include "weft/kernels/kernels.h"
#include "weft/tensor/cuda/check_cuda.h"
#include "weft/tensor/cuda/cuda_queue.h"

namespace weft::cuda {

inline CudaQueue& queue_of(Stream& stream) { return static_cast<CudaQueue&>(stream.queue()); }

// Of the calling thread's device: 90 is 9.0.
inline int compute_capability() {
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "tell its device");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "tell its capability");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "tell its capability");
  return 10 * major + minor;
}

template <class... Params, class... Args>
void launch_on(cudaStream_t stream, void (*kernel)(Params...), const LaunchShape& shape, Args&&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks_x, shape.blocks_y, shape.blocks_z);
  config.blockDim = dim3(shape.threads);
  config.stream = stream;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = shape.follows && can_start_early() ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "launch a kernel");
}

// Nothing is launched for a shape without blocks. Kernels use static __shared__ memory only, at most 48 KiB.
template <class... Params, class... Args>
void launch(Stream& stream, void (*kernel)(Params...), LaunchShape shape, Args&&... args) {
  if (shape.num_blocks() == 0) return;
  CudaQueue& queue = queue_of(stream);
  StepGraphs& steps = queue.steps();
  if (!steps.is_in_step()) return launch_on(queue.stream(), kernel, shape, std::forward<Args>(args)...);
  const std::tuple<Params...> params(std::forward<Args>(args)...);
  OpBytes& description = steps.description().add(kernel).add(shape);
  std::apply([&](const auto&... p) { (description.add(p), ...); }, params);
  steps.add([kernel, shape, params](cudaStream_t on) {
    std::apply([&](const auto&... p) { launch_on(on, kernel, shape, p...); }, params);
  });
}

// The same of a kernel each of whose threads calls follow() (follow.cuh): it may begin while the one before it on the
// stream ends, where the device can do that (9.0), so that neither its start nor what it fetches ahead takes time of
// its own. For the short kernels that a decoded token is made of.
template <class... Params, class... Args>
void launch_following(Stream& stream, void (*kernel)(Params...), LaunchShape shape, Args&&... args) {
  shape.follows = 1;
  launch(stream, kernel, shape, std::forward<Args>(args)...);
}

// An array of the host as device memory for the kernels of this call; null stays null.
template <class T>
const T* upload(Stream& stream, const T* host, int64_t count) {
  return host ? static_cast<const T*>(stream.queue().upload(host, size_t(count) * sizeof(T))) : nullptr;
}

// A tensor's elements in device memory; null of an empty tensor.
template <class T>
T* device_data(const Tensor& t) {
  if (!t) return nullptr;
  check(t.dtype() == dtype_of<T>(), "tensor holds {}, read as {}", name_of(t.dtype()), name_of(dtype_of<T>()));
  return static_cast<T*>(t.raw());
}

// work.operator()<T>() with the element type of `t`; the names of others are in the Error.
template <class Work>
void with_float(const char* op, const Tensor& t, Work&& work) {
  switch (t.dtype()) {
    case DType::f32: return work.template operator()<float>();
    case DType::bf16: return work.template operator()<BFloat16>();
    case DType::f16: return work.template operator()<Float16>();
    default: throw Error("{}: the cuda kernels take f32, bf16 and f16, not {}", op, name_of(t.dtype()));
  }
}

// The same for the ops that know f64 too.
template <class Work>
void with_any_float(const char* op, const Tensor& t, Work&& work) {
  if (t.dtype() == DType::f64) return work.template operator()<double>();
  with_float(op, t, work);
}

}  // namespace weft::cuda
