// DoRA against plain loops in float64: what it computes, and its gradients with the lengths of rows held fixed.
#include "support/rank.h"
#include "weft/parallel/dora.h"

namespace weft {
namespace {

constexpr int64_t kDoraTokens = 5, kDoraIn = 7, kDoraOut = 6, kDoraRank = 2;
constexpr double kDoraScale = 1.5;

struct Layer {
  explicit Layer(TestRank& rank)
      : weight("w", Shape{kDoraOut, kDoraIn}, Init::zeros()),
        a("w.lora_a", Shape{kDoraRank, kDoraIn}, Init::zeros()),
        b("w.lora_b", Shape{kDoraOut, kDoraRank}, Init::zeros()),
        magnitude("w.lora_magnitude", Shape{kDoraOut}, Init::zeros()) {
    for (Param* p : {&weight, &a, &b, &magnitude}) {
      p->value = rank.normal(DType::f64, p->shape, p->name);
      p->grad = rank.context.empty(DType::f64, p->shape);
    }
    weight.trainable = false;
    x = rank.normal(DType::f64, {kDoraTokens, kDoraIn}, "x");
    dy = rank.normal(DType::f64, {kDoraTokens, kDoraOut}, "dy");
  }

  static double at(const Tensor& t, int64_t row, int64_t col) { return t.data<double>()[row * t.dim(1) + col]; }
  double adapted(int64_t o, int64_t i) const {
    double sum = at(weight.value, o, i);
    for (int64_t r = 0; r < kDoraRank; ++r) sum += kDoraScale * at(b.value, o, r) * at(a.value, r, i);
    return sum;
  }
  std::vector<double> norms() const {
    std::vector<double> all;
    for (int64_t o = 0; o < kDoraOut; ++o) {
      double squares = 0;
      for (int64_t i = 0; i < kDoraIn; ++i) squares += adapted(o, i) * adapted(o, i);
      all.push_back(std::sqrt(squares));
    }
    return all;
  }
  std::vector<double> outputs(const std::vector<double>& norm) const {
    std::vector<double> y;
    for (int64_t t = 0; t < kDoraTokens; ++t)
      for (int64_t o = 0; o < kDoraOut; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < kDoraIn; ++i) sum += at(x, t, i) * adapted(o, i);
        y.push_back(sum * magnitude.value.data<double>()[o] / norm[size_t(o)]);
      }
    return y;
  }
  double loss(const std::vector<double>& norm) const {
    const std::vector<double> y = outputs(norm);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy.data<double>()[i];
    return sum;
  }

  Param weight, a, b, magnitude;
  Tensor x, dy;
};

TEST(DoraGradientTest, EqualsCentralDifferencesWithFixedLengths) {
  TestRank rank(reference_kernels());
  Layer l(rank);
  Tensor base = rank.context.empty(DType::f64, {kDoraTokens, kDoraOut});
  rank.context.kernels.matmul(rank.stream, {.y = base, .a = l.x, .b = l.weight.value, .transpose_b = true});
  DoraOp op{l.weight, l.a, l.b, l.magnitude, float(kDoraScale), {}, nullptr};
  const Tensor y = op.forward(rank.context, base, l.x);
  const std::vector<double> norm = l.norms(), want = l.outputs(norm);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y.data<double>()[i], want[i], 1e-12);

  const std::array<Tensor, 2> d = op.backward(rank.context, l.dy);
  op.backward_weight(rank.context, l.dy);
  // What reaches x by way of y = x wᵀ comes with the layer's own backward.
  Tensor dx = rank.context.empty(DType::f64, {kDoraTokens, kDoraIn});
  rank.context.kernels.matmul(rank.stream, {.y = dx, .a = d[0], .b = l.weight.value});
  rank.context.kernels.add(rank.stream, dx, dx, d[1]);

  constexpr double kStep = 1e-6;
  const auto expect_slopes = [&](const Tensor& value, const Tensor& grad, const char* name) {
    for (int64_t i = 0; i < value.numel(); ++i) {
      double& v = value.data<double>()[i];
      const double before = v;
      v = before + kStep;
      const double above = l.loss(norm);
      v = before - kStep;
      const double below = l.loss(norm);
      v = before;
      EXPECT_NEAR(grad.data<double>()[i], (above - below) / (2 * kStep), 1e-7) << name << i;
    }
  };
  expect_slopes(l.a.value, l.a.grad, "a");
  expect_slopes(l.b.value, l.b.grad, "b");
  expect_slopes(l.magnitude.value, l.magnitude.grad, "magnitude");
  expect_slopes(l.x, dx, "x");

  // A second micro-batch adds to the first.
  const std::vector<double> once(l.magnitude.grad.data<double>(), l.magnitude.grad.data<double>() + kDoraOut);
  op.backward_weight(rank.context, l.dy);
  for (int64_t o = 0; o < kDoraOut; ++o) EXPECT_NEAR(l.magnitude.grad.data<double>()[o], 2 * once[size_t(o)], 1e-12);
}

TEST(DoraGradientTest, AFrozenBiasIsAddedToEveryRow) {
  TestRank rank(reference_kernels());
  Param bias("bias", Shape{kDoraOut}, Init::zeros());
  bias.value = rank.normal(DType::f64, {kDoraOut}, "bias");
  const Tensor x = rank.normal(DType::f64, {kDoraTokens, kDoraOut}, "y");
  const Tensor read_elsewhere = x;  // or it would be written
  const Tensor y = FrozenBiasOp{bias}.forward(rank.context, x);
  for (int64_t i = 0; i < y.numel(); ++i)
    EXPECT_DOUBLE_EQ(y.data<double>()[i], x.data<double>()[i] + bias.value.data<double>()[i % kDoraOut]);
}

}  // namespace
}  // namespace weft
