// AttentionSinks: learned scores of heads that stand for no key; see Kernels::attention_sinks.
#pragma once
#include "weft/autograd/param.h"

namespace weft {

// Of the heads of a layer that this rank holds, or none at all. `first` is the head among them with which a call's
// begin.
struct AttentionSinks {
  Param* param = nullptr;  // [N]

  explicit operator bool() const { return param != nullptr; }
  Tensor of(int64_t first, int64_t heads) const { return param ? param->value.slice_rows(first, heads) : Tensor(); }

  // y[T, N, D] and lse[N, T] of keys alone become those of keys and sinks.
  void join(Context& context, const Tensor& y, const Tensor& lse, int64_t first = 0) const {
    if (param) context.kernels.attention_sinks(context.stream, y, lse, of(first, y.dim(1)));
  }
  // y and lse: as joined.
  void add_gradient(Context& context, const Tensor& dy, const Tensor& y, const Tensor& lse, int64_t first = 0) const {
    if (!param || !param->trainable) return;
    if (!param->accumulate_next()) context.kernels.fill(context.stream, param->grad, 0);
    context.kernels.attention_sinks_backward(context.stream, param->grad.slice_rows(first, y.dim(1)), dy, y, lse,
                                             of(first, y.dim(1)));
  }
};

}  // namespace weft
