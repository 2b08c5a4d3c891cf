// What the host reads and writes of tensors, wherever they lie: of one on a device a copy in host memory.
#pragma once
#include "weft/tensor/stream.h"

namespace weft {

// `t` itself where it has bytes that the host can read or none at all, else a copy of it as it is when all that was
// queued is done.
inline Tensor on_host(Stream& stream, const Tensor& t) {
  if (!t || t.device() != Device::cuda) return t;
  const Tensor host = stream.host_memory().empty(t.dtype(), t.shape());
  stream.copy(host, t);
  return host;
}

// t = what fill(host) leaves in a tensor of its dtype and shape, whose contents are undefined before.
template <class Fill>
void fill_on_host(Stream& stream, const Tensor& t, Fill&& fill) {
  if (t.device() != Device::cuda) return fill(t);
  const Tensor host = stream.host_memory().empty(t.dtype(), t.shape());
  fill(host);
  stream.copy(t, host);
}

// The same, with t's contents before.
template <class Change>
void change_on_host(Stream& stream, const Tensor& t, Change&& change) {
  const Tensor host = on_host(stream, t);
  change(host);
  if (t.device() == Device::cuda) stream.copy(t, host);
}

}  // namespace weft
