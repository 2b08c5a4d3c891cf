// gather_columns: a matrix whose columns lie on the ranks of a group, put together on each of them.
#pragma once
#include "weft/autograd/context.h"
#include "weft/comm/communicator.h"

namespace weft {

// mine[rows, C here], any float dtype: even cuts of the columns, in rank order -> whole[rows, C], fp32 (fp64 beside
// fp64). Collective.
void gather_columns(Context& context, Communicator& group, const Tensor& whole, const Tensor& mine);

}  // namespace weft
