// Linear: a weight, and a bias and an adapter where the model has them; whole, or the part that this rank holds.
#pragma once
#include <array>
#include <optional>

#include "weft/autograd/ops/linear.h"
#include "weft/nn/lora.h"
#include "weft/nn/lora_set.h"
#include "weft/parallel/dora.h"
#include "weft/parallel/tensor_parallel.h"

namespace weft {

struct LinearConfig {
  int64_t in = 0, out = 0;
  bool has_bias = false;
  float init_std = 0.02f;
  std::optional<Cut> out_cut = {};  // this rank makes some of the outputs
  std::optional<Cut> in_cut = {};   // this rank makes a part of a sum, from some of the inputs
  bool is_first = true;             // of those who make the sum: it adds the bias
  // The same weights are held by several ranks, each of which sees a part of the gradient.
  bool is_shared = false, is_first_holder = true;
  // Outputs are f32 or wider (WideLinearOp): of weights that are few, whose results choose or gate.
  bool is_wide = false;
  bool is_read_by_head = false;  // not by products y = x wT alone, but cut into the heads that its outputs are
  AdapterConfig adapter = {};
  BaseFormat base = BaseFormat::plain;

  bool is_sum() const { return in_cut && !in_cut->is_whole(); }
};

// Of a weight outside of tensor-parallel regions, which every rank of the group holds.
inline LinearConfig outside_regions(LinearConfig c, const TensorParallel& tensor) {
  c.is_shared = tensor.cuts_sequence(), c.is_first_holder = tensor.rank() == 0;
  return c;
}

class Linear {
 public:
  Linear(const std::string& name, const LinearConfig& c)
      : is_wide_(c.is_wide),
        adds_bias_(c.is_first),
        weight_(name + ".weight", weight_placement(c), Init::normal(c.init_std)) {
    if (c.base == BaseFormat::nf4) weight_.hold_as_nf4();
    weight_.is_bulk = !c.is_wide;
    // DoRA reads the lengths of rows.
    if (!c.is_wide && !c.is_read_by_head && (c.adapter.rank == 0 || !c.adapter.is_dora))
      weight_.readers = Param::Readers::products;
    if (c.has_bias) bias_.emplace(name + ".bias", bias_placement(c), Init::zeros());
    if (c.adapter.rank > 0) lora_.emplace(name, c.adapter, weight_, c.is_sum(), c.is_first);
    adds_bias_later_ = c.adapter.rank > 0 && c.adapter.is_dora;
  }

  Var operator()(const Var& x, const Pass& pass) { return adapt((*this)(x), x, pass); }
  // Where there is no adapter.
  Var operator()(const Var& x) {
    return is_wide_ ? apply(*x.context, WideLinearOp{weights()}, x) : linear(x, weights());
  }
  // What the adapter, if there is one, makes of what weights() give.
  Var adapt(Var y, const Var& x, const Pass& pass) {
    if (lora_ && pass.uses_adapters) y = (*lora_)(y, x, pass);
    if (pass.lora) y = add_lora_rows(*pass.lora, weight_, std::move(y), x);
    return adds_bias_later_ && bias_ && adds_bias_ ? apply(*x.context, FrozenBiasOp{*bias_}, y) : std::move(y);
  }
  bool has_adapter() const { return lora_.has_value(); }
  LinearWeights weights() { return {&weight_, bias_ && adds_bias_ && !adds_bias_later_ ? &*bias_ : nullptr}; }

  void each_param(auto&& visit) {
    visit(weight_);
    if (bias_) visit(*bias_);
    if (lora_) lora_->each_param(visit);
  }

 private:
  static Placement weight_placement(const LinearConfig& c) {
    Placement p(Shape{c.out, c.in});
    if (c.out_cut) p.cut(0, *c.out_cut);
    if (c.in_cut) p.cut(1, *c.in_cut);
    p.is_partial = c.is_shared, p.is_first_copy = c.is_first_holder;
    return p;
  }
  // The bias of a sum is held by all of its ranks and added by the first.
  static Placement bias_placement(const LinearConfig& c) {
    Placement p(Shape{c.out});
    if (c.out_cut) p.cut(0, *c.out_cut);
    p.is_partial = c.is_shared || c.is_sum();
    p.is_first_copy = c.is_sum() ? c.is_first : c.is_first_holder;
    return p;
  }

  bool is_wide_, adds_bias_, adds_bias_later_ = false;
  Param weight_;
  std::optional<Param> bias_;
  std::optional<Lora> lora_;
};

// What each of several makes of x, in products of one input.
template <class... L>
std::array<Var, sizeof...(L)> adapted_linears(const Var& x, const Pass& pass, L&... layers) {
  std::array<Var, sizeof...(L)> y = linears(x, layers.weights()...);
  size_t i = 0;
  ((y[i] = layers.adapt(std::move(y[i]), x, pass), ++i), ...);
  return y;
}

}  // namespace weft
