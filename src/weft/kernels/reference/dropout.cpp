// Dropout, decided per element by a counter-based random number.
#include "weft/base/philox.h"
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

double dropout_factor(const DropoutKey& key, uint64_t index) {
  if (key.p == 0) return 1;
  const bool is_kept = to_uniform(philox(key.seed, index, key.stream)[0]) >= key.p;
  return is_kept ? 1 / (1 - double(key.p)) : 0;
}

void dropout(Stream&, const Tensor& y, const Tensor& x, const DropoutKey& key) {
  shapes::check_dropout(y, x, key);
  std::vector<double> values = load(x);
  for (size_t i = 0; i < values.size(); ++i) {
    const double factor = dropout_factor(key, key.first + i);
    values[i] = factor == 0 ? 0 : values[i] * factor;  // a dropped infinity is 0, not NaN
  }
  store(y, values);
}

}  // namespace weft::reference
