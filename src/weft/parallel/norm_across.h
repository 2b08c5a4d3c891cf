// norm_across: a norm over all heads of a token, of which each rank of a tensor group has some.
#pragma once
#include "weft/base/function_ref.h"

#include "weft/parallel/tensor_parallel.h"

namespace weft {

// x[T, columns.count] inside a tensor-parallel region: the columns of each token that this rank has. `is_first`: of
// the ranks that have the same columns. normalise: [T, columns.total] -> the same, the same on every rank; its
// weights are replicated inside the region. Returns this rank's columns of the result.
Var norm_across(const TensorParallel& tensor, const Cut& columns, bool is_first, const Var& x,
                FunctionRef<Var(const Var&)> normalise);

}  // namespace weft
