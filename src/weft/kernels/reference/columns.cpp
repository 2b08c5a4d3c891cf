// Products of matrices with vectors of their columns, and sums of products along columns and rows.
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void scale_columns(Stream&, const Tensor& y, const Tensor& x, const Tensor& factors) {
  shapes::check_scale_columns(y, x, factors);
  const std::vector<double> by = load(factors);
  std::vector<double> values = load(x);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= by[i % by.size()];
  store(y, values);
}

void dot_columns(Stream&, const Tensor& y, const Tensor& a, const Tensor& b, bool accumulate) {
  shapes::check_dot_columns(y, a, b);
  const std::vector<double> left = load(a), right = load(b);
  std::vector<double> sums = accumulate ? load(y) : std::vector<double>(size_t(a.cols()), 0.0);
  for (size_t i = 0; i < left.size(); ++i) sums[i % sums.size()] += left[i] * right[i];
  store(y, sums);
}

void dot_rows(Stream&, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_dot_rows(y, a, b);
  const std::vector<double> left = load(a), right = load(b);
  std::vector<double> sums(size_t(a.rows()), 0.0);
  for (size_t i = 0; i < left.size(); ++i) sums[i / size_t(a.cols())] += left[i] * right[i];
  store(y, sums);
}

}  // namespace weft::reference
