// on_masters: an optimizer's kernel on masters as they lie beside a value.
#pragma once
#include "weft/kernels/kernels.h"

namespace weft {

// Calls step(master, value) with the lower halves of `whole` as masters where the value is bf16, and else with
// `whole` itself. Afterwards `whole` is what they have become.
template <class Step>
void on_masters(const Kernels& k, Stream& stream, const Tensor& whole, const Tensor& value, Step&& step) {
  if (!value || value.dtype() != DType::bf16) return step(whole, value);
  const Tensor lower = stream.allocator().empty(DType::u16, whole.shape());
  k.split_masters(stream, value, lower, whole);
  step(lower, value);
  k.join_masters(stream, whole, value, lower);
}

}  // namespace weft
