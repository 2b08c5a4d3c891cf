// Element-wise operations and reductions.
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void add(Stream&, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_alike("add", {{"a", a}, {"b", b}, {"y", y}});
  const std::vector<double> other = load(b);
  std::vector<double> values = load(a);
  for (size_t i = 0; i < values.size(); ++i) values[i] += other[i];
  store(y, values);
}

void accumulate(Stream&, const Tensor& sum, const Tensor& x) {
  shapes::check_accumulate(sum, x);
  const std::vector<double> other = load(x);
  std::vector<double> values = load(sum);
  for (size_t i = 0; i < values.size(); ++i) values[i] += other[i];
  store(sum, values);
}

void scale(Stream&, const Tensor& y, const Tensor& x, float factor) {
  shapes::check_alike("scale", {{"x", x}, {"y", y}});
  std::vector<double> values = load(x);
  for (double& value : values) value *= double(factor);
  store(y, values);
}

void convert(Stream&, const Tensor& y, const Tensor& x) {
  shapes::check_convert(y, x);
  store(y, load(x));
}

void fill(Stream&, const Tensor& y, float value) {
  shapes::check_fill(y);
  store(y, std::vector<double>(size_t(y.numel()), double(value)));
}

void sum_rows(Stream&, const Tensor& y, const Tensor& x, bool accumulate) {
  shapes::check_sum_rows(y, x);
  const auto rows = size_t(x.rows()), cols = size_t(x.cols());
  const std::vector<double> values = load(x);
  std::vector<double> sums = accumulate ? load(y) : std::vector<double>(cols, 0.0);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) sums[c] += values[r * cols + c];
  store(y, sums);
}

double sum_of_squares(Stream&, std::span<const Tensor> xs) {
  shapes::check_sum_of_squares(xs);
  double sum = 0;
  for (const Tensor& x : xs)
    for (const double value : load(x)) sum += value * value;
  return sum;
}

}  // namespace weft::reference
