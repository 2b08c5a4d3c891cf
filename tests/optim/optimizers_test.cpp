// Every optimizer against its formula in double precision, on one rank.
#include "optim/one_rank.h"
#include "weft/optim/adafactor.h"
#include "weft/optim/adamw8.h"
#include "weft/optim/momentum.h"
#include "weft/optim/muon.h"
#include "weft/optim/orthogonalize.h"

namespace weft {
namespace {

constexpr double kLr = 0.01, kScale = 0.5, kDecay = 0.1;
constexpr int kSteps = 4;

using Numbers = std::vector<double>;

// Runs some steps on gradients that change, beside expected(param, step, weights, gradient, state), which updates the
// weights; `state` begins empty.
using Formula =
    std::function<void(const Param&, int step, Numbers& weight, const Numbers& grad, std::vector<Numbers>& state)>;
template <class Make>
void expect_formula(Make&& make, const Formula& formula, double tolerance) {
  OneRankParams rank;
  const std::unique_ptr<Optimizer> optimizer = make(rank.rank.context, rank.owned());
  std::vector<Numbers> want;
  std::vector<std::vector<Numbers>> states(rank.params.size());
  for (const auto& p : rank.params) want.push_back(rank.weights(*p));
  for (int step = 1; step <= kSteps; ++step) {
    rank.set_gradients(step);
    for (size_t p = 0; p < rank.params.size(); ++p) {
      Numbers grad = rank.gradients(*rank.params[p]);
      for (double& g : grad) g *= kScale;
      formula(*rank.params[p], step, want[p], grad, states[p]);
    }
    optimizer->step(kLr, kScale);
    for (size_t p = 0; p < rank.params.size(); ++p) {
      const Numbers got = rank.weights(*rank.params[p]);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[p][i], tolerance) << rank.params[p]->name << "[" << i << "] after step " << step;
    }
  }
}

double decay_of(const Param& p) { return p.shape.rank() >= 2 ? kDecay : 0; }

void adamw(const Param& p, int step, Numbers& w, const Numbers& g, std::vector<Numbers>& state, double lr) {
  state.resize(2, Numbers(w.size()));
  for (size_t i = 0; i < w.size(); ++i) {
    double &m = state[0][i], &v = state[1][i];
    m = 0.9 * m + 0.1 * g[i], v = 0.95 * v + 0.05 * g[i] * g[i];
    const double m_hat = m / (1 - std::pow(0.9, step)), v_hat = v / (1 - std::pow(0.95, step));
    w[i] -= lr * (m_hat / (std::sqrt(v_hat) + 1e-8) + decay_of(p) * w[i]);
  }
}

TEST(OptimizersTest, AdamW) {
  expect_formula(
      [](Context& c, std::vector<Owned> o) {
        return std::make_unique<AdamW>(c, std::move(o), AdamWOptions{.weight_decay = kDecay});
      },
      [](const Param& p, int step, Numbers& w, const Numbers& g, auto& state) { adamw(p, step, w, g, state, kLr); },
      1e-6);
}

// Eight bits keep the direction: every update is near that of AdamW.
TEST(OptimizersTest, AdamW8) {
  for (const bool for_everything : {false, true})
    expect_formula(
        [&](Context& c, std::vector<Owned> o) {
          return std::make_unique<AdamW8>(c, std::move(o), AdamWOptions{.weight_decay = kDecay}, for_everything);
        },
        [](const Param& p, int step, Numbers& w, const Numbers& g, auto& state) { adamw(p, step, w, g, state, kLr); },
        for_everything ? 0.1 * kLr * kSteps : 1e-6);
}

TEST(OptimizersTest, Sgd) {
  for (const bool nesterov : {false, true})
    for (const double momentum : {0.0, 0.9})
      expect_formula(
          [&](Context& c, std::vector<Owned> o) {
            const SgdOptions options{.momentum = momentum, .nesterov = nesterov, .weight_decay = kDecay};
            return std::make_unique<Sgd>(c, std::move(o), options);
          },
          [&](const Param& p, int, Numbers& w, const Numbers& g, std::vector<Numbers>& state) {
            state.resize(1, Numbers(w.size()));
            for (size_t i = 0; i < w.size(); ++i) {
              state[0][i] = momentum * state[0][i] + g[i];
              const double u = nesterov ? g[i] + momentum * state[0][i] : state[0][i];
              w[i] -= kLr * (u + decay_of(p) * w[i]);
            }
          },
          1e-6);
}

TEST(OptimizersTest, Lion) {
  expect_formula(
      [](Context& c, std::vector<Owned> o) {
        return std::make_unique<Lion>(c, std::move(o), LionOptions{.weight_decay = kDecay});
      },
      [](const Param& p, int, Numbers& w, const Numbers& g, std::vector<Numbers>& state) {
        state.resize(1, Numbers(w.size()));
        for (size_t i = 0; i < w.size(); ++i) {
          const double c = 0.9 * state[0][i] + 0.1 * g[i];
          state[0][i] = 0.99 * state[0][i] + 0.01 * g[i];
          w[i] -= kLr * (double(c > 0) - double(c < 0) + decay_of(p) * w[i]);
        }
      },
      1e-6);
}

struct Extent {
  size_t count, rows, cols;
  explicit Extent(const Param& p)
      : count(p.shape.rank() > 2 ? size_t(p.shape[0]) : 1),
        rows(p.shape.rank() > 1 ? size_t(p.shape[-2]) : 1),
        cols(size_t(p.shape[-1])) {}
};

// The paper's algorithms 4 and 5, with a vector's second moment kept whole.
void adafactor(const Param& p, int step, Numbers& w, const Numbers& g, std::vector<Numbers>& state) {
  const Extent e(p);
  const double beta = 1 - std::pow(step, -0.8);
  state.resize(3);
  Numbers& r = state[0];
  Numbers& c = state[1];
  Numbers& v = state[2];
  r.resize(e.count * e.rows), c.resize(e.count * e.cols), v.resize(w.size());
  for (double& x : r) x *= beta;
  for (double& x : c) x *= beta;
  Numbers u(w.size()), squares(e.count);
  for (size_t i = 0; i < w.size(); ++i) {
    const size_t matrix = i / (e.rows * e.cols), row = matrix * e.rows + i / e.cols % e.rows;
    r[row] += (1 - beta) * (g[i] * g[i] + 1e-30);
    c[matrix * e.cols + i % e.cols] += (1 - beta) * (g[i] * g[i] + 1e-30);
    v[i] = beta * v[i] + (1 - beta) * (g[i] * g[i] + 1e-30);
  }
  for (size_t i = 0; i < w.size(); ++i) {
    const size_t matrix = i / (e.rows * e.cols), row = i / e.cols % e.rows;
    double sum = 0;
    for (size_t k = 0; k < e.rows; ++k) sum += r[matrix * e.rows + k];
    const double factored = r[matrix * e.rows + row] * c[matrix * e.cols + i % e.cols] / sum;
    u[i] = g[i] / std::sqrt(p.shape.rank() < 2 ? v[i] : factored);
    squares[matrix] += u[i] * u[i];
  }
  for (size_t i = 0; i < w.size(); ++i) {
    const double rms = std::sqrt(squares[i / (e.rows * e.cols)] / double(e.rows * e.cols));
    w[i] -= kLr * (u[i] / std::max(1.0, rms) + decay_of(p) * w[i]);
  }
}

TEST(OptimizersTest, Adafactor) {
  expect_formula(
      [](Context& c, std::vector<Owned> o) {
        return std::make_unique<Adafactor>(c, std::move(o), AdafactorOptions{.weight_decay = kDecay});
      },
      adafactor, 2e-6);
}

// x[rows, cols] in double, as orthogonalize does it.
void newton_schulz(double* x, size_t rows, size_t cols) {
  const auto product = [](const Numbers& a, const Numbers& b, size_t m, size_t k, size_t n) {
    Numbers y(m * n);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j)
        for (size_t l = 0; l < k; ++l) y[i * n + j] += a[i * k + l] * b[l * n + j];
    return y;
  };
  Numbers now(x, x + rows * cols);
  double squares = 0;
  for (const double v : now) squares += v * v;
  for (double& v : now) v /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    Numbers transposed(now.size());
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < cols; ++j) transposed[j * rows + i] = now[i * cols + j];
    const Numbers a = product(now, transposed, rows, cols, rows), ax = product(a, now, rows, rows, cols),
                  aax = product(a, ax, rows, rows, cols);
    for (size_t i = 0; i < now.size(); ++i) now[i] = 3.4445 * now[i] - 4.7750 * ax[i] + 2.0315 * aax[i];
  }
  std::copy(now.begin(), now.end(), x);
}

TEST(OptimizersTest, Muon) {
  for (const bool nesterov : {false, true})
    expect_formula(
        [&](Context& c, std::vector<Owned> o) {
          const MuonOptions options{
              .nesterov = nesterov, .weight_decay = kDecay, .adamw = {.weight_decay = kDecay}, .adamw_lr_ratio = 0.5};
          return std::make_unique<Muon>(c, std::move(o), options);
        },
        [&](const Param& p, int step, Numbers& w, const Numbers& g, std::vector<Numbers>& state) {
          if (!is_hidden_matrix(p.name, p.shape)) return adamw(p, step, w, g, state, 0.5 * kLr);
          state.resize(1, Numbers(w.size()));
          Numbers u(w.size());
          for (size_t i = 0; i < w.size(); ++i) {
            state[0][i] = 0.95 * state[0][i] + g[i];
            u[i] = nesterov ? g[i] + 0.95 * state[0][i] : state[0][i];
          }
          const Extent e(p);
          for (size_t m = 0; m < e.count; ++m) newton_schulz(u.data() + m * e.rows * e.cols, e.rows, e.cols);
          const double scale = 0.2 * std::sqrt(double(std::max(e.rows, e.cols)));
          for (size_t i = 0; i < w.size(); ++i) w[i] -= kLr * (scale * u[i] + decay_of(p) * w[i]);
        },
        2e-5);
}

TEST(OrthogonalizeTest, BringsSingularValuesNearOne) {
  for (const Shape& shape : {Shape{24, 24}, Shape{16, 40}, Shape{40, 16}, Shape{1, 7}}) {
    TestRank rank(cpu_kernels(), 2);
    const Tensor x = rank.normal(DType::f32, shape, "x", 10);
    orthogonalize(rank.context, x, 10);
    // The trace of the Gram matrix is the sum of the squared singular values.
    const double mean = rank.context.kernels.sum_of_squares(rank.stream, {&x, 1}) / double(std::min(shape[0], shape[1]));
    EXPECT_GT(mean, 0.6) << fmt::format("{}", shape);
    EXPECT_LT(mean, 1.4) << fmt::format("{}", shape);
  }
}

}  // namespace
}  // namespace weft
