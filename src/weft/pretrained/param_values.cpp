// read_values, copy_values: run by run of what a rank holds.
#include "weft/pretrained/param_values.h"

#include <algorithm>

#include "weft/tensor/host_access.h"

namespace weft {
namespace {

// Calls visit(local, global, count) for runs of elements [begin, begin + count) of what a rank holds, on all threads.
template <class Visit>
void each_run_at_once(Context& context, const Param& param, int64_t begin, int64_t count, const Visit& visit) {
  constexpr int64_t kElementsOfTask = 1 << 16;
  context.stream.team().parallel_for(count, kElementsOfTask, [&](int64_t first, int64_t last, int) {
    param.placement.each_run(begin + first, last - first, visit);
  });
}

}  // namespace

void read_values(Context& context, const Param& param, FunctionRef<void(int64_t, std::span<float>)> read) {
  constexpr int64_t kElements = 1 << 20;
  const int64_t size = param.shape.numel();
  const auto read_runs = [&](int64_t begin, int64_t count, float* out) {
    each_run_at_once(context, param, begin, count, [&](int64_t local, int64_t global, int64_t n) {
      read(global, {out + (local - begin), size_t(n)});
    });
  };
  if (param.value.dtype() == DType::f32 && param.value.device() == Device::cpu)
    return read_runs(0, size, param.value.data<float>());
  for (int64_t begin = 0; begin < size; begin += kElements) {
    const int64_t count = std::min(kElements, size - begin);
    const Tensor wide = context.empty(DType::f32, {count});
    fill_on_host(context.stream, wide, [&](const Tensor& host) { read_runs(begin, count, host.data<float>()); });
    context.kernels.convert(context.stream, param.value.slice_flat(begin, {count}), wide);
  }
}

void copy_values(Context& context, const Param& param, FunctionRef<void(int64_t, std::span<std::byte>)> copy) {
  const size_t size = size_of(param.value.dtype());
  fill_on_host(context.stream, param.value, [&](const Tensor& host) {
    auto* const out = static_cast<std::byte*>(host.raw());
    each_run_at_once(context, param, 0, param.shape.numel(), [&](int64_t local, int64_t global, int64_t n) {
      copy(global, {out + size_t(local) * size, size_t(n) * size});
    });
  });
}

}  // namespace weft
