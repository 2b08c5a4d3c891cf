// LayerInputs: a table, a projection, and their sum cut by layer.
#include "weft/nn/layer_inputs.h"

#include <cmath>
#include <memory>

#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/reshape.h"
#include "weft/autograd/ops/scale.h"

namespace weft {
namespace {

// x[T * L, D] -> [L * T, D]: what each layer sees lies in one piece.
struct ByLayerOp {
  static constexpr std::string_view kName = "by_layer";
  int64_t tokens, layers;
  std::vector<int32_t> there = {}, back = {};

  Tensor forward(Context& context, const Tensor& x) { return turned(context, x, tokens, layers, there); }
  Tensor backward(Context& context, const Tensor& dy) { return turned(context, dy, layers, tokens, back); }

 private:
  // x[a * b, D] -> [b * a, D]. rows: what the kernel reads, which has to last as long as its work.
  static Tensor turned(Context& context, const Tensor& x, int64_t a, int64_t b, std::vector<int32_t>& rows) {
    for (int64_t j = 0; j < b; ++j)
      for (int64_t i = 0; i < a; ++i) rows.push_back(int32_t(i * b + j));
    const Tensor y = context.empty_like(x);
    context.kernels.combine_rows(context.stream, y, x, {.at = rows.data(), .k = 1}, {});
    return y;
  }
};

// Of x[L * T, D] the rows of one layer. All layers write their gradients into one tensor, which the first layer, the
// last to have one, gives.
struct OneLayerOp {
  static constexpr std::string_view kName = "one_layer";
  int64_t layer, tokens;
  std::shared_ptr<Tensor> gradient;  // of all layers
  Shape whole = {};

  Tensor forward(Context&, const Tensor& x) {
    whole = x.shape();
    return x.slice_rows(layer * tokens, tokens);
  }
  Tensor backward(Context& context, const Tensor& dy) {
    if (!*gradient) *gradient = context.empty(dy.dtype(), whole);
    context.stream.copy(gradient->slice_rows(layer * tokens, tokens), dy);
    return layer == 0 ? std::move(*gradient) : Tensor();
  }
};

Placement table_placement(const LayerInputsConfig& c, const TensorParallel& tensor) {
  Placement p(Shape{c.vocab, c.layers * c.width});
  p.cut(0, tensor.cut(c.vocab));
  return p;
}

}  // namespace

LayerInputs::LayerInputs(const std::string& name, const LayerInputsConfig& c, const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      table_(name + ".weight", table_placement(c, tensor_), Init::normal(c.init_std)),
      projection_(name + ".projection",
                  outside_regions({.in = c.hidden, .out = c.layers * c.width, .init_std = c.init_std, .base = c.base},
                                  tensor_)),
      norm_(name + ".norm", tensor_.replicated({c.width}), {.kind = NormKind::rms, .eps = c.norm_eps}) {
  table_.readers = Param::Readers::rows;
}

std::vector<Var> LayerInputs::operator()(const Var& embedded, const Pass& pass, DType dtype) {
  Context& context = *embedded.context;
  const int64_t rows = embedded.value.dim(0), layers = config_.layers, width = config_.width;
  const Var looked_up =
      apply(context, EmbeddingOp{table_, nullptr, pass.ids, nullptr, pass.num_tokens, dtype, pass.ids_are_there});
  const Var told = scaled(projection_(embedded), 1 / std::sqrt(float(config_.hidden)));
  const Var own = scaled(tensor_.leave(looked_up), std::sqrt(float(width)));
  const Var sum = norm_(reshape(told, {rows * layers, width})) + reshape(own, {rows * layers, width});
  Var all = scaled(sum, float(1 / std::sqrt(2.0)));
  if (rows > 1) all = apply(context, ByLayerOp{rows, layers}, all);
  std::vector<Var> inputs;
  const auto gradient = std::make_shared<Tensor>();
  for (int64_t l = 0; l < layers; ++l) inputs.push_back(apply(context, OneLayerOp{l, rows, gradient}, all));
  return inputs;
}

}  // namespace weft
