// The matrix products beside a linear layer's: those of the narrow factors of an adapter.
#pragma once
#include "weft/autograd/param.h"

namespace weft {

inline Tensor as_matrix(const Tensor& x) { return x.reshape({x.rows(), x.cols()}); }

// x itself where it has that dtype.
Tensor in_dtype(Context& context, const Tensor& x, DType dtype);

// x[T, I] wᵀ, w: [O, I]
Tensor times_transposed(Context& context, const Tensor& x, Param& w);
// dy[T, O] w
Tensor times(Context& context, const Tensor& dy, Param& w);
// y += x wᵀ, y perhaps in a wider dtype; in place where nobody else has y
Tensor plus_times_transposed(Context& context, const Tensor& y, const Tensor& x, Param& w);
// w.grad += dyᵀ x
void add_gradient(Context& context, Param& w, const Tensor& dy, const Tensor& x);

}  // namespace weft
