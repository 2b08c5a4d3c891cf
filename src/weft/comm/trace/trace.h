// A rank of a world that is not there: calls return at once and move nothing, for planning and for meta memory.
#pragma once
#include <memory>

#include "weft/comm/communicator.h"

namespace weft {

// Rank `rank` of `size`. Its statistics and its observer say what a real rank would have sent. Tensors are left as
// they are, so only meta tensors make sense in it.
std::unique_ptr<Communicator> make_trace_communicator(int rank, int size, std::string_view label = "world");

}  // namespace weft
