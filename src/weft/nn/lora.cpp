// Lora: placements and initial values of an adapter.
#include "weft/nn/lora.h"

#include <cmath>

#include "weft/parallel/dora.h"

namespace weft {
namespace {

// [O]: as the rows of b, whose gradient is as partial.
Placement magnitude_placement(const Placement& linear, bool is_sum, bool is_first) {
  Placement p(Shape{linear.whole[0]});
  p.cut(0, {linear.begin[0], linear.shape[0], linear.whole[0]});
  p.is_partial = linear.is_partial || is_sum;
  p.is_first_copy = is_sum ? is_first : linear.is_first_copy;
  return p;
}

}  // namespace

LoraPlacements lora_placements(int64_t rank, const Placement& linear) {
  const int out = linear.whole.rank() - 2, in = out + 1;
  LoraPlacements p{linear.whole, linear.whole};
  p.a.whole[out] = p.a.shape[out] = p.b.whole[in] = p.b.shape[in] = rank;
  const auto cut_as_linear = [&](Placement& factor, int dim) {
    factor.cut(dim, {linear.begin[size_t(dim)], linear.shape[dim], linear.whole[dim]});
  };
  cut_as_linear(p.a, in), cut_as_linear(p.b, out);
  for (Placement* factor : {&p.a, &p.b}) {
    if (out > 0) cut_as_linear(*factor, 0);
    factor->is_expert = linear.is_expert;
  }
  return p;
}

// a is complete where inputs are cut, else every rank's outputs add to its gradient; b is as the weight's rows, and
// in a sum every rank's inputs add to its gradient.
LoraPlacements trained_lora_placements(int64_t rank, const Placement& linear, bool is_sum, bool is_first) {
  const int out = linear.whole.rank() - 2;
  LoraPlacements p = lora_placements(rank, linear);
  if (!is_sum) {
    p.a.is_partial = linear.is_partial || linear.shape[out] != linear.whole[out];
    p.a.is_first_copy = linear.begin[size_t(out)] == 0 && linear.is_first_copy;
  }
  p.b.is_partial = linear.is_partial || is_sum;
  p.b.is_first_copy = is_sum ? is_first : linear.is_first_copy;
  return p;
}

Init lora_a_init(const Placement& linear) {
  return Init::normal(1 / std::sqrt(3 * float(linear.whole[linear.whole.rank() - 1])));
}

Lora::Lora(const std::string& name, const AdapterConfig& c, Param& weight, bool is_sum, bool is_first)
    : config_(c),
      dropout_site_(name_hash(name + ".lora")),
      weight_(weight),
      a_(name + ".lora_a", trained_lora_placements(c.rank, weight.placement, is_sum, is_first).a,
         lora_a_init(weight.placement)),
      b_(name + ".lora_b", trained_lora_placements(c.rank, weight.placement, is_sum, is_first).b, Init::zeros()) {
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
