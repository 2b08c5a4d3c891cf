// AdamW: one step of the optimizer.
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void adamw(Stream&, const AdamWArgs& args) {
  shapes::check_adamw(args);
  const double beta1 = double(args.beta1), beta2 = double(args.beta2), lr = double(args.lr);
  const std::vector<double> grad = load(args.grad);
  std::vector<double> master = load_master(args.master, args.value), m = load(args.m), v = load(args.v);
  for (size_t i = 0; i < master.size(); ++i) {
    const double g = grad[i] * double(args.grad_scale);
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    const double m_hat = m[i] / double(args.bias_correction1), v_hat = v[i] / double(args.bias_correction2);
    master[i] -= lr * (m_hat / (std::sqrt(v_hat) + double(args.eps)) + double(args.weight_decay) * master[i]);
  }
  store(args.m, m);
  store(args.v, v);
  store_master(args.master, args.value, master);
}

}  // namespace weft::reference
