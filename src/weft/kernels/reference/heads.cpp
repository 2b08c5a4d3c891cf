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

}  // namespace weft::reference
