// Masters, whole or in two halves.
#include "weft/kernels/master_halves.h"
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

std::vector<double> load_master(const Tensor& master, const Tensor& value) {
  if (master.dtype() != DType::u16) return load(master);
  std::vector<double> x(size_t(master.numel()));
  for (size_t i = 0; i < x.size(); ++i) {
    MasterHalves halves;
    halves.upper = value.data<BFloat16>()[i], halves.lower = master.data<uint16_t>()[i];
    x[i] = double(halves.whole());
  }
  return x;
}

void store_master(const Tensor& master, const Tensor& value, const std::vector<double>& x) {
  if (master.dtype() != DType::u16) {
    store(master, x);
    if (value) store(value, load(master));  // a copy of the master as it is stored
    return;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const MasterHalves halves = MasterHalves::of(float(x[i]));
    value.data<BFloat16>()[i] = halves.upper, master.data<uint16_t>()[i] = halves.lower;
  }
}

void split_masters(Stream&, const Tensor& upper, const Tensor& lower, const Tensor& x) {
  shapes::check_halves("split_masters", upper, lower, x);
  store_master(lower, upper, load(x));
}

void join_masters(Stream&, const Tensor& x, const Tensor& upper, const Tensor& lower) {
  shapes::check_halves("join_masters", upper, lower, x);
  store(x, load_master(lower, upper));
}

}  // namespace weft::reference
