// Lora: placements and initial values of an adapter.
#include "weft/nn/lora.h"

#include <cmath>

#include "weft/parallel/dora.h"

namespace weft {
namespace {

// [r, I]: complete here where inputs are cut, else every rank's outputs add to its gradient.
Placement a_placement(int64_t rank, const Placement& linear, bool is_sum) {
  Placement p = lora_factor({rank, linear.whole[1]}, linear, 1);
  if (is_sum) return p;
  p.is_partial = linear.is_partial || linear.shape[0] != linear.whole[0];
  p.is_first_copy = linear.begin[0] == 0 && linear.is_first_copy;
  return p;
}

// [O, r]: as the weight's rows, and in a sum every rank's inputs add to its gradient.
Placement b_placement(int64_t rank, const Placement& linear, bool is_sum, bool is_first) {
  Placement p = lora_factor({linear.whole[0], rank}, linear, 0);
  p.is_partial = linear.is_partial || is_sum;
  p.is_first_copy = is_sum ? is_first : linear.is_first_copy;
  return p;
}

// [O]: as the rows of b, whose gradient is as partial.
Placement magnitude_placement(const Placement& linear, bool is_sum, bool is_first) {
  Placement p(Shape{linear.whole[0]});
  p.cut(0, {linear.begin[0], linear.shape[0], linear.whole[0]});
  p.is_partial = linear.is_partial || is_sum;
  p.is_first_copy = is_sum ? is_first : linear.is_first_copy;
  return p;
}

// As wide as the uniform distribution of the common implementations, U(-1/sqrt(I), 1/sqrt(I)).
float a_std(int64_t inputs) { return 1 / std::sqrt(3 * float(inputs)); }

}  // namespace

Placement lora_factor(const Shape& whole, const Placement& linear, int dim) {
  Placement p(whole);
  p.cut(dim, {linear.begin[size_t(dim)], linear.shape[dim], linear.whole[dim]});
  return p;
}

Lora::Lora(const std::string& name, const AdapterConfig& c, Param& weight, bool is_sum, bool is_first)
    : config_(c),
      dropout_site_(name_hash(name + ".lora")),
      weight_(weight),
      a_(name + ".lora_a", a_placement(c.rank, weight.placement, is_sum),
         Init::normal(a_std(weight.placement.whole[1]))),
      b_(name + ".lora_b", b_placement(c.rank, weight.placement, is_sum, is_first), Init::zeros()) {
  if (c.is_dora)
    magnitude_.emplace(name + ".lora_magnitude", magnitude_placement(weight.placement, is_sum, is_first),
                       Init::ones());
}

Var Lora::operator()(const Var& y, const Var& x, const Pass& pass) {
  const LoraDropout dropout{.key = pass.dropout_key(config_.dropout, dropout_site_),
                            .spans = pass.tokens,
                            .first_column = a_.placement.begin[1],
                            .columns = a_.placement.whole[1]};
  if (magnitude_)
    return apply(*x.context, DoraOp{weight_, a_, b_, *magnitude_, config_.scale, dropout, config_.inputs}, y, x);
  return apply(*x.context, LoraOp{a_, b_, config_.scale, dropout}, y, x);
}

}  // namespace weft
