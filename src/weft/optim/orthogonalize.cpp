// orthogonalize: matrix products of the kernel table, in the dtype of the matrix.
#include "weft/optim/orthogonalize.h"

#include <cmath>

namespace weft {

void orthogonalize(Context& context, const Tensor& x, int steps) {
  constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
  constexpr double kEps = 1e-7;
  const Kernels& k = context.kernels;
  Stream& s = context.stream;
  const bool is_tall = x.dim(0) > x.dim(1);  // then A = x^T x, and it multiplies from the right
  const int64_t n = std::min(x.dim(0), x.dim(1));
  k.scale(s, x, x, float(1 / (std::sqrt(k.sum_of_squares(s, {&x, 1})) + kEps)));
  const Tensor square = context.empty(x.dtype(), {n, n}), scaled = context.empty_like(square),
               polynomial = context.empty_like(square), old = context.empty_like(x);
  for (int step = 0; step < steps; ++step) {
    k.matmul(s, {.y = square, .a = x, .b = x, .transpose_a = is_tall, .transpose_b = !is_tall});
    k.scale(s, scaled, square, kC);
    k.scale(s, polynomial, square, kB);
    k.matmul(s, {.y = polynomial, .a = scaled, .b = square, .accumulate = true});
    k.convert(s, old, x);
    k.scale(s, x, x, kA);
    k.matmul(s, {.y = x, .a = is_tall ? old : polynomial, .b = is_tall ? polynomial : old, .accumulate = true});
  }
}

}  // namespace weft
