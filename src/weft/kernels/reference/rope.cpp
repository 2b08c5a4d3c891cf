// Rotary position embedding.
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void rope(Stream&, const RopeArgs& args) {
  shapes::check_rope(args);
  const auto num_tokens = size_t(args.x.dim(0)), heads = size_t(args.x.dim(1)), head_dim = size_t(args.x.dim(2));
  const auto half = size_t(args.cos.dim(1));
  std::vector<double> x = load(args.x);
  const std::vector<double> cos = load(args.cos), sin = load(args.sin);
  const std::vector<double> factors = args.factors ? load(args.factors) : std::vector<double>();
  for (size_t t = 0; t < num_tokens; ++t)
    for (size_t head = 0; head < heads; ++head) {
      for (size_t i = 0; i < half; ++i) {
        const size_t angle = size_t(args.positions[t]) * half + i;
        const double c = cos[angle], s = args.inverse ? -sin[angle] : sin[angle];
        double& x1 = x[(t * heads + head) * head_dim + i];
        double& x2 = x[(t * heads + head) * head_dim + half + i];
        const double y1 = x1 * c - x2 * s, y2 = x2 * c + x1 * s;
        x1 = y1, x2 = y2;
      }
      for (size_t i = 0; args.factors && i < head_dim; ++i)
        x[(t * heads + head) * head_dim + i] *= factors[size_t(args.positions[t])];
    }
  store(args.x, x);
}

}  // namespace weft::reference
