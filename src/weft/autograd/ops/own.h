// own: a tensor to write into.
#pragma once
#include "weft/autograd/context.h"

namespace weft {

// The tensor itself, unless somebody else reads it too; then a copy.
inline Tensor own(Context& context, const Tensor& x) {
  if (x.is_unique()) return x;
  Tensor copy = context.empty_like(x);
  context.kernels.convert(context.stream, copy, x);
  return copy;
}

}  // namespace weft
