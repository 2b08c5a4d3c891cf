// Heads of which the first elements are shared by all of a token.
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void join_heads(Stream&, const Tensor& y, const Tensor& shared, const Tensor& own) {
  shapes::check_join_heads("join_heads", y, shared, own);
  const auto heads = size_t(own.dim(1)), a = size_t(shared.dim(1)), b = size_t(own.dim(2));
  const std::vector<double> first = load(shared), rest = load(own);
  std::vector<double> all(size_t(y.numel()));
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t row = i / (a + b), e = i % (a + b);  // row: of token and head
    all[i] = e < a ? first[row / heads * a + e] : rest[row * b + e - a];
  }
  store(y, all);
}

void split_heads(Stream&, const Tensor& dshared, const Tensor& down, const Tensor& dy) {
  shapes::check_join_heads("split_heads", dy, dshared, down);
  const auto heads = size_t(down.dim(1)), a = size_t(dshared.dim(1)), b = size_t(down.dim(2));
  const std::vector<double> all = load(dy);
  std::vector<double> first(size_t(dshared.numel())), rest(size_t(down.numel()));
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t row = i / (a + b), e = i % (a + b);
    if (e < a)
      first[row / heads * a + e] += all[i];
    else
      rest[row * b + e - a] = all[i];
  }
  store(dshared, first);
  store(down, rest);
}

void take_heads(Stream&, const Tensor& y, const Tensor& x, int64_t first) {
  shapes::check_part_of_heads("take_heads", x, y, first);
  const int64_t tokens = x.dim(0), heads = x.dim(1), width = x.dim(2), dim = y.dim(2);
  const std::vector<double> from = load(x);
  std::vector<double> part(size_t(y.numel()));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h)
      std::copy_n(from.begin() + (t * heads + h) * width + first, dim, part.begin() + (h * tokens + t) * dim);
  store(y, part);
}

void put_heads(Stream&, const Tensor& y, const Tensor& x, int64_t first) {
  shapes::check_part_of_heads("put_heads", y, x, first);
  const int64_t tokens = y.dim(0), heads = y.dim(1), width = y.dim(2), dim = x.dim(2);
  const std::vector<double> part = load(x);
  std::vector<double> whole = load(y);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h)
      std::copy_n(part.begin() + (h * tokens + t) * dim, dim, whole.begin() + (t * heads + h) * width + first);
  store(y, whole);
}

}  // namespace weft::reference
