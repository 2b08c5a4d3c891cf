// What the host reads of tensors in any dtype of floats.
#pragma once
#include "weft/autograd/context.h"
#include "weft/tensor/host_access.h"

namespace weft {

// `t` in f32, in host memory; itself where it is so.
inline Tensor floats_on_host(Context& context, const Tensor& t) {
  if (t.dtype() == DType::f32) return on_host(context.stream, t);
  const Tensor floats = context.empty(DType::f32, t.shape());
  context.kernels.convert(context.stream, floats, t);
  return on_host(context.stream, floats);
}

}  // namespace weft
