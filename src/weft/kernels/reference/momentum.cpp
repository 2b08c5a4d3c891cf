// SGD with momentum, and Lion.
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void sgd(Stream&, const SgdArgs& args) {
  shapes::check_sgd(args);
  const double momentum = double(args.momentum), decay = double(args.weight_decay);
  const std::vector<double> grad = load(args.grad);
  std::vector<double> master = load_master(args.master, args.value), m = load_or(args.m, args.master.numel(), 0);
  for (size_t i = 0; i < master.size(); ++i) {
    const double g = grad[i] * double(args.grad_scale);
    m[i] = momentum * m[i] + g;
    const double update = !args.m ? g : args.nesterov ? g + momentum * m[i] : m[i];
    master[i] -= double(args.lr) * (update + decay * master[i]);
  }
  if (args.m) store(args.m, m);
  store_master(args.master, args.value, master);
}

void lion(Stream&, const LionArgs& args) {
  shapes::check_lion(args);
  const double beta1 = double(args.beta1), beta2 = double(args.beta2), decay = double(args.weight_decay);
  const std::vector<double> grad = load(args.grad);
  std::vector<double> master = load_master(args.master, args.value), m = load(args.m);
  for (size_t i = 0; i < master.size(); ++i) {
    const double g = grad[i] * double(args.grad_scale);
    const double c = beta1 * m[i] + (1 - beta1) * g;
    const double update = c == 0 ? 0 : c / (std::abs(c) + double(args.softness));
    m[i] = beta2 * m[i] + (1 - beta2) * g;
    master[i] -= double(args.lr) * (update + decay * master[i]);
  }
  store(args.m, m);
  store_master(args.master, args.value, master);
}

}  // namespace weft::reference
