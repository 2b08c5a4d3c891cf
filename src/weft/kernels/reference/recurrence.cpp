// Causal convolution and the gated delta rule, token by token.
#include <algorithm>
#include <cmath>
#include <functional>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

// What the taps of row t, of a run, see: x[t - W + 1 + j, c].
double tap(const std::vector<double>& x, const std::vector<double>& states, const TokenRun& run, int64_t t, int64_t c,
           int64_t channels, int64_t width) {
  if (t >= run.begin) return x[size_t(t * channels + c)];
  if (run.from < 0) return 0;
  return states[size_t((run.from * (width - 1) + t - run.begin + width - 1) * channels + c)];
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A vector of length 1, and the inverse of the length it had.
struct Unit {
  std::vector<double> values;
  double inverse = 0;

  Unit(const std::vector<double>& x, size_t at, size_t count) : values(count) {
    double squares = 1e-6;
    for (size_t i = 0; i < count; ++i) squares += x[at + i] * x[at + i];
    inverse = 1 / std::sqrt(squares);
    for (size_t i = 0; i < count; ++i) values[i] = x[at + i] * inverse;
  }
  // Adds the gradient of what it was made of to dx[at...].
  void add_gradient(std::vector<double>& dx, size_t at, const std::vector<double>& dunit) const {
    double along = 0;
    for (size_t i = 0; i < values.size(); ++i) along += values[i] * dunit[i];
    for (size_t i = 0; i < values.size(); ++i) dx[at + i] += inverse * (dunit[i] - along * values[i]);
  }
};

// The inputs as doubles, and what a token does to a head's state.
struct Delta {
  size_t tokens, keys, heads, dk, dv;
  std::vector<double> q, k, v, a, b, rate, shift;

  template <class Args>
  explicit Delta(const Args& args)
      : tokens(size_t(args.q.dim(0))),
        keys(size_t(args.q.dim(1))),
        heads(size_t(args.v.dim(1))),
        dk(size_t(args.q.dim(2))),
        dv(size_t(args.v.dim(2))),
        q(load(args.q)),
        k(load(args.k)),
        v(load(args.v)),
        a(load(args.a)),
        b(load(args.b)),
        rate(load(args.rate)),
        shift(load(args.shift)) {}

  struct Token {
    Unit q, k;
    double log_decay, decay, beta;
    std::vector<double> error, learnt;  // v - S^T k', and beta times it: [dv]
  };
  size_t key_at(size_t t, size_t n) const { return (t * keys + n / (heads / keys)) * dk; }
  double query_scale() const { return 1 / std::sqrt(double(dk)); }

  // Head n of token t; state is decayed and then learns.
  Token step(std::vector<double>& state, size_t t, size_t n) const {
    const double x = a[t * heads + n] + shift[n];
    const double log_decay = -std::exp(rate[n]) * (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))));
    Token token{.q = Unit(q, key_at(t, n), dk),
                .k = Unit(k, key_at(t, n), dk),
                .log_decay = log_decay,
                .decay = std::exp(log_decay),
                .beta = sigmoid(b[t * heads + n]),
                .error = std::vector<double>(dv),
                .learnt = std::vector<double>(dv)};
    for (double& s : state) s *= token.decay;
    for (size_t j = 0; j < dv; ++j) {
      double known = 0;
      for (size_t i = 0; i < dk; ++i) known += state[i * dv + j] * token.k.values[i];
      token.error[j] = v[(t * heads + n) * dv + j] - known;
      token.learnt[j] = token.beta * token.error[j];
    }
    for (size_t i = 0; i < dk; ++i)
      for (size_t j = 0; j < dv; ++j) state[i * dv + j] += token.k.values[i] * token.learnt[j];
    return token;
  }
};

}  // namespace

void causal_conv(Stream&, const CausalConvArgs& args) {
  shapes::check_causal_conv(args);
  const int64_t channels = args.x.dim(1), width = args.weight.dim(1);
  const std::vector<double> x = load(args.x), w = load(args.weight);
  std::vector<double> states = args.states ? load(args.states) : std::vector<double>(), y(x.size());
  for (const TokenRun& run : args.runs) {
    for (int64_t t = run.begin; t < run.end; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < width; ++j)
          sum += w[size_t(c * width + j)] * tap(x, states, run, t - width + 1 + j, c, channels, width);
        y[size_t(t * channels + c)] = activate(Activation::silu, sum);
      }
    if (run.to < 0) continue;
    std::vector<double> last;
    for (int64_t t = run.end - width + 1; t < run.end; ++t)
      for (int64_t c = 0; c < channels; ++c) last.push_back(tap(x, states, run, t, c, channels, width));
    std::ranges::copy(last, states.begin() + run.to * (width - 1) * channels);
  }
  store(args.y, y);
  if (args.states) store(args.states, states);
}

void causal_conv_backward(Stream&, const CausalConvBackwardArgs& args) {
  shapes::check_causal_conv_backward(args);
  const int64_t channels = args.x.dim(1), width = args.weight.dim(1);
  const std::vector<double> x = load(args.x), w = load(args.weight), dy = load(args.dy);
  std::vector<double> dx(x.size()), dw(w.size());
  for (const TokenRun& run : args.runs)
    for (int64_t t = run.begin; t < run.end; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < width; ++j)
          sum += w[size_t(c * width + j)] * tap(x, {}, run, t - width + 1 + j, c, channels, width);
        const double dsum = dy[size_t(t * channels + c)] * activation_slope(Activation::silu, sum);
        for (int64_t j = 0; j < width; ++j) {
          const int64_t from = t - width + 1 + j;
          if (from < run.begin) continue;
          dx[size_t(from * channels + c)] += w[size_t(c * width + j)] * dsum;
          dw[size_t(c * width + j)] += x[size_t(from * channels + c)] * dsum;
        }
      }
  store(args.dx, dx);
  if (!args.dweight) return;
  if (args.accumulate) std::ranges::transform(dw, load(args.dweight), dw.begin(), std::plus<>());
  store(args.dweight, dw);
}

void gated_delta(Stream&, const GatedDeltaArgs& args) {
  shapes::check_gated_delta(args);
  const Delta delta(args);
  const size_t dk = delta.dk, dv = delta.dv, one = dk * dv;
  std::vector<double> states = args.states ? load(args.states) : std::vector<double>();
  std::vector<double> y(size_t(args.y.numel()));
  for (const TokenRun& run : args.runs)
    for (size_t n = 0; n < delta.heads; ++n) {
      const auto state_at = [&](int32_t number) {
        return states.begin() + std::ptrdiff_t((size_t(number) * delta.heads + n) * one);
      };
      std::vector<double> state(one);
      if (run.from >= 0) std::copy_n(state_at(run.from), one, state.begin());
      for (auto t = size_t(run.begin); t < size_t(run.end); ++t) {
        const Delta::Token token = delta.step(state, t, n);
        for (size_t i = 0; i < dk; ++i)
          for (size_t j = 0; j < dv; ++j)
            y[(t * delta.heads + n) * dv + j] += token.q.values[i] * delta.query_scale() * state[i * dv + j];
      }
      if (run.to >= 0) std::ranges::copy(state, state_at(run.to));
    }
  store(args.y, y);
  if (args.states) store(args.states, states);
}

void gated_delta_backward(Stream&, const GatedDeltaBackwardArgs& args) {
  shapes::check_gated_delta_backward(args);
  const Delta delta(args);
  const size_t heads = delta.heads, dk = delta.dk, dv = delta.dv;
  const double scale = delta.query_scale();
  const std::vector<double> dy = load(args.dy);
  std::vector<double> dq(delta.q.size()), dk_all(dq.size()), dv_all(delta.v.size()), da(delta.a.size()),
      db(delta.a.size()), drate(heads), dshift(heads);
  for (const TokenRun& run : args.runs)
    for (size_t n = 0; n < heads; ++n) {
      std::vector<double> state(dk * dv);
      std::vector<std::vector<double>> before;  // each token
      std::vector<Delta::Token> tokens;
      for (auto t = size_t(run.begin); t < size_t(run.end); ++t) {
        before.push_back(state);
        tokens.push_back(delta.step(state, t, n));
      }
      std::vector<double> dstate(dk * dv);
      for (auto t = size_t(run.end); t-- > size_t(run.begin);) {
        const Delta::Token& token = tokens[t - size_t(run.begin)];
        const std::vector<double>& old = before[t - size_t(run.begin)];
        const double* const out = dy.data() + (t * heads + n) * dv;
        std::vector<double> dunit_q(dk), dunit_k(dk), dlearnt(dv), derror(dv);
        for (size_t i = 0; i < dk; ++i)
          for (size_t j = 0; j < dv; ++j) {
            const double now = token.decay * old[i * dv + j] + token.k.values[i] * token.learnt[j];
            dunit_q[i] += scale * now * out[j];
            dstate[i * dv + j] += scale * token.q.values[i] * out[j];
            dunit_k[i] += dstate[i * dv + j] * token.learnt[j];
            dlearnt[j] += dstate[i * dv + j] * token.k.values[i];
          }
        double dbeta = 0, dlog_decay = 0;
        for (size_t j = 0; j < dv; ++j) {
          dbeta += dlearnt[j] * token.error[j];
          derror[j] = token.beta * dlearnt[j];
          dv_all[(t * heads + n) * dv + j] = derror[j];
        }
        for (size_t i = 0; i < dk; ++i)
          for (size_t j = 0; j < dv; ++j) {
            const double decayed = token.decay * old[i * dv + j];
            dunit_k[i] -= decayed * derror[j];
            dstate[i * dv + j] -= token.k.values[i] * derror[j];
            dlog_decay += dstate[i * dv + j] * decayed;
            dstate[i * dv + j] *= token.decay;
          }
        token.q.add_gradient(dq, delta.key_at(t, n), dunit_q);
        token.k.add_gradient(dk_all, delta.key_at(t, n), dunit_k);
        db[t * heads + n] = dbeta * token.beta * (1 - token.beta);
        da[t * heads + n] = -dlog_decay * std::exp(delta.rate[n]) * sigmoid(delta.a[t * heads + n] + delta.shift[n]);
        drate[n] += dlog_decay * token.log_decay;
        dshift[n] += da[t * heads + n];
      }
    }
  store(args.dq, dq), store(args.dk, dk_all), store(args.dv, dv_all), store(args.da, da), store(args.db, db);
  if (!args.drate) return;
  std::ranges::transform(drate, load(args.drate), drate.begin(), std::plus<>());
  std::ranges::transform(dshift, load(args.dshift), dshift.begin(), std::plus<>());
  store(args.drate, drate), store(args.dshift, dshift);
}

}  // namespace weft::reference
