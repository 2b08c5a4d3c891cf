// orthogonalize: the nearest matrix with singular values of about one, by Newton-Schulz steps.
#pragma once
#include "weft/autograd/context.h"

namespace weft {

// x[R, C] is overwritten with about U V^T of its singular value decomposition U S V^T: `steps` times
// x = a x + (b A + c A^2) x with A = x x^T, after division by the Frobenius norm. Singular values end between about
// 0.7 and 1.2. Source: Jordan et al., "Muon", 2024.
void orthogonalize(Context& context, const Tensor& x, int steps);

}  // namespace weft
