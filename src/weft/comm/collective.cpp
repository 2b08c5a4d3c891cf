// How collectives are written in messages, and what they send.
#include "weft/comm/collective.h"

#include <fmt/format.h>

namespace weft {

std::string_view name_of(CommOp op) {
  switch (op) {
    case CommOp::all_reduce: return "all_reduce";
    case CommOp::all_gather: return "all_gather";
    case CommOp::reduce_scatter: return "reduce_scatter";
    case CommOp::broadcast: return "broadcast";
    case CommOp::all_to_all: return "all_to_all";
    case CommOp::send: return "send";
    case CommOp::recv: return "recv";
    case CommOp::barrier: return "barrier";
    case CommOp::split: return "split";
    case CommOp::allocate_shared: return "allocate_shared";
  }
  return "?";
}

std::string describe(const Collective& call) {
  std::string text(name_of(call.op));
  if (call.reduction == Reduction::max) text += " (max)";
  if (call.reduction == Reduction::min) text += " (min)";
  switch (call.op) {
    case CommOp::barrier:
    case CommOp::split: return text;
    case CommOp::broadcast: text += fmt::format(" from rank {}", call.peer); break;
    case CommOp::send: text += fmt::format(" to rank {}, tag {},", call.peer, call.tag); break;
    case CommOp::recv: text += fmt::format(" from rank {}, tag {},", call.peer, call.tag); break;
    case CommOp::all_to_all:
      return text + fmt::format(" of rows of {} bytes {}", call.row_bytes, name_of(call.dtype));
    default: break;
  }
  return text + fmt::format(" of {} bytes {}", call.bytes, name_of(call.dtype));
}

int64_t bytes_sent(const Collective& call, int rank, int size) {
  const int64_t bytes = int64_t(call.bytes), others = size - 1;
  switch (call.op) {
    case CommOp::all_reduce: return 2 * bytes * others / size;
    case CommOp::all_gather:
    case CommOp::reduce_scatter: return bytes * others;
    case CommOp::broadcast: return rank == call.peer && others ? bytes : 0;
    case CommOp::all_to_all: return bytes - call.in_counts[size_t(rank)] * int64_t(call.row_bytes);
    case CommOp::send: return call.peer == rank ? 0 : bytes;
    default: return 0;
  }
}

}  // namespace weft
