// HostVisit: a visit of weights or states that gets them on the host, wherever they lie.
#pragma once
#include "weft/optim/optimizer.h"
#include "weft/tensor/host_access.h"

namespace weft {

// As Optimizer::VisitState; with is_written what it leaves goes back to where the tensor lies.
struct HostVisit {
  Stream& stream;
  bool is_written;
  Optimizer::VisitState visit;

  void operator()(const Tensor& here, int64_t first, bool is_counted) const {
    if (!is_written) return visit(on_host(stream, here), first, is_counted);
    change_on_host(stream, here, [&](const Tensor& host) { visit(host, first, is_counted); });
  }
};

}  // namespace weft
