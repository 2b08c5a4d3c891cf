// Causal convolution and recurrences of matrices, token by token.
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

// A key or a query as its rule reads it: a vector of length 1, and the inverse of the length it had; or as it is.
struct Address {
  std::vector<double> values;
  double inverse = 1;
  bool is_unit;

  Address(StateRule rule, const std::vector<double>& x, size_t at, size_t count)
      : values(x.begin() + std::ptrdiff_t(at), x.begin() + std::ptrdiff_t(at + count)),
        is_unit(rule == StateRule::delta) {
    if (!is_unit) return;
    double squares = 1e-6;
    for (const double value : values) squares += value * value;
    inverse = 1 / std::sqrt(squares);
    for (double& value : values) value *= inverse;
  }
  // Adds the gradient of what it was made of to dx[at...].
  void add_gradient(std::vector<double>& dx, size_t at, const std::vector<double>& gradient) const {
    double along = 0;
    for (size_t i = 0; is_unit && i < values.size(); ++i) along += values[i] * gradient[i];
    for (size_t i = 0; i < values.size(); ++i) dx[at + i] += inverse * (gradient[i] - along * values[i]);
  }
};

// The inputs as doubles, and what a token does to a head's state.
struct States {
  StateRule rule;
  double beta_scale;
  size_t tokens, keys, heads, dk, dv, rates;
  std::vector<double> q, k, v, a, b, rate, shift, skip;

  template <class Args>
  explicit States(const Args& args)
      : rule(args.rule),
        beta_scale(double(args.beta_scale)),
        tokens(size_t(args.q.dim(0))),
        keys(size_t(args.q.dim(1))),
        heads(size_t(args.v.dim(1))),
        dk(size_t(args.q.dim(2))),
        dv(size_t(args.v.dim(2))),
        rates(size_t(rates_of_head(args))),
        q(load(args.q)),
        k(load(args.k)),
        v(load(args.v)),
        a(load(args.a)),
        b(rule == StateRule::delta ? load(args.b) : std::vector<double>()),
        rate(load(args.rate)),
        shift(load(args.shift)),
        skip(rule == StateRule::selective ? load(args.skip) : std::vector<double>(heads)) {}

  bool is_delta() const { return rule == StateRule::delta; }
  struct Token {
    Address q, k;
    std::vector<double> log_decay, decay;  // [rates]
    double beta;                           // of the delta rule, or the step
    std::vector<double> error, learnt;     // v, less S^T k' by the delta rule, and beta times it: [dv]
  };
  // Which of a head's rates row i of a state has.
  size_t rate_of(size_t i) const { return rates > 1 ? i : 0; }
  size_t key_at(size_t t, size_t n) const { return (t * keys + n / (heads / keys)) * dk; }
  double query_scale() const { return is_delta() ? 1 / std::sqrt(double(dk)) : 1; }

  struct GateGradients {
    std::vector<double> da, db, drate, dshift;
  };
  // To what the gates of head n of token t are made of.
  void add_gates(GateGradients& to, const Token& token, size_t t, size_t n, const std::vector<double>& dlog_decay,
                 double dbeta) const {
    if (is_delta()) to.db[t * heads + n] = dbeta * token.beta * (1 - token.beta / beta_scale);
    for (size_t i = 0; i < rates; ++i) {
      const size_t at = (t * heads + n) * rates + i, row = n * rates + i;
      const double dstep = (is_delta() ? 0 : dbeta) - dlog_decay[i] * std::exp(rate[n]);
      to.da[at] = dstep * sigmoid(a[at] + shift[row]);
      to.drate[n] += dlog_decay[i] * token.log_decay[i];
      to.dshift[row] += to.da[at];
    }
  }

  // Head n of token t; state is decayed and then learns.
  Token step(std::vector<double>& state, size_t t, size_t n) const {
    double softplus = 0;
    std::vector<double> log_decay, decay;
    for (size_t i = 0; i < rates; ++i) {
      const double x = a[(t * heads + n) * rates + i] + shift[n * rates + i];
      softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
      log_decay.push_back(-std::exp(rate[n]) * softplus);
      decay.push_back(std::exp(log_decay.back()));
    }
    Token token{.q = Address(rule, q, key_at(t, n), dk),
                .k = Address(rule, k, key_at(t, n), dk),
                .log_decay = log_decay,
                .decay = decay,
                .beta = is_delta() ? beta_scale * sigmoid(b[t * heads + n]) : softplus,
                .error = std::vector<double>(dv),
                .learnt = std::vector<double>(dv)};
    for (size_t i = 0; i < dk; ++i)
      for (size_t j = 0; j < dv; ++j) state[i * dv + j] *= decay[rate_of(i)];
    for (size_t j = 0; j < dv; ++j) {
      double known = 0;
      for (size_t i = 0; is_delta() && i < dk; ++i) known += state[i * dv + j] * token.k.values[i];
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
  const std::vector<double> bias = args.bias ? load(args.bias) : std::vector<double>();
  std::vector<double> states = args.states ? load(args.states) : std::vector<double>(), y(x.size());
  for (const TokenRun& run : args.runs) {
    for (int64_t t = run.begin; t < run.end; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < width; ++j)
          sum += w[size_t(c * width + j)] * tap(x, states, run, t - width + 1 + j, c, channels, width);
        if (args.bias) sum += bias[size_t(c)];
        y[size_t(t * channels + c)] = activate(args.f, sum);
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
  const std::vector<double> bias = args.bias ? load(args.bias) : std::vector<double>();
  std::vector<double> dx(x.size()), dw(w.size()), dbias(size_t(channels), 0.0);
  for (const TokenRun& run : args.runs)
    for (int64_t t = run.begin; t < run.end; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < width; ++j)
          sum += w[size_t(c * width + j)] * tap(x, {}, run, t - width + 1 + j, c, channels, width);
        if (args.bias) sum += bias[size_t(c)];
        const double dsum = dy[size_t(t * channels + c)] * activation_slope(args.f, sum);
        dbias[size_t(c)] += dsum;
        for (int64_t j = 0; j < width; ++j) {
          const int64_t from = t - width + 1 + j;
          if (from < run.begin) continue;
          dx[size_t(from * channels + c)] += w[size_t(c * width + j)] * dsum;
          dw[size_t(c * width + j)] += x[size_t(from * channels + c)] * dsum;
        }
      }
  store(args.dx, dx);
  const auto give = [&](const Tensor& to, std::vector<double>& sums) {
    if (!to) return;
    if (args.accumulate) std::ranges::transform(sums, load(to), sums.begin(), std::plus<>());
    store(to, sums);
  };
  give(args.dweight, dw), give(args.dbias, dbias);
}

void recurrence(Stream&, const RecurrenceArgs& args) {
  shapes::check_recurrence(args);
  const States call(args);
  const size_t dk = call.dk, dv = call.dv, one = dk * dv;
  std::vector<double> states = args.states ? load(args.states) : std::vector<double>();
  std::vector<double> y(size_t(args.y.numel()));
  for (const TokenRun& run : args.runs)
    for (size_t n = 0; n < call.heads; ++n) {
      const auto state_at = [&](int32_t number) {
        return states.begin() + std::ptrdiff_t((size_t(number) * call.heads + n) * one);
      };
      std::vector<double> state(one);
      if (run.from >= 0) std::copy_n(state_at(run.from), one, state.begin());
      for (auto t = size_t(run.begin); t < size_t(run.end); ++t) {
        const States::Token token = call.step(state, t, n);
        for (size_t i = 0; i < dk; ++i)
          for (size_t j = 0; j < dv; ++j)
            y[(t * call.heads + n) * dv + j] += token.q.values[i] * call.query_scale() * state[i * dv + j];
        for (size_t j = 0; j < dv; ++j) {
          const size_t at = (t * call.heads + n) * dv + j;
          y[at] += call.skip[n] * call.v[at];
        }
      }
      if (run.to >= 0) std::ranges::copy(state, state_at(run.to));
    }
  store(args.y, y);
  if (args.states) store(args.states, states);
}

void recurrence_backward(Stream&, const RecurrenceBackwardArgs& args) {
  shapes::check_recurrence_backward(args);
  const States call(args);
  const size_t heads = call.heads, dk = call.dk, dv = call.dv;
  const double scale = call.query_scale();
  const std::vector<double> dy = load(args.dy);
  std::vector<double> dq(call.q.size()), dk_all(dq.size()), dv_all(call.v.size()), dskip(heads);
  States::GateGradients gates{.da = std::vector<double>(call.a.size()),
                              .db = std::vector<double>(call.b.size()),
                              .drate = std::vector<double>(heads),
                              .dshift = std::vector<double>(call.shift.size())};
  for (const TokenRun& run : args.runs)
    for (size_t n = 0; n < heads; ++n) {
      std::vector<double> state(dk * dv);
      std::vector<std::vector<double>> before;  // each token
      std::vector<States::Token> tokens;
      for (auto t = size_t(run.begin); t < size_t(run.end); ++t) {
        before.push_back(state);
        tokens.push_back(call.step(state, t, n));
      }
      std::vector<double> dstate(dk * dv);
      for (auto t = size_t(run.end); t-- > size_t(run.begin);) {
        const States::Token& token = tokens[t - size_t(run.begin)];
        const std::vector<double>& old = before[t - size_t(run.begin)];
        const double* const out = dy.data() + (t * heads + n) * dv;
        std::vector<double> dq_head(dk), dk_head(dk), dlearnt(dv), derror(dv);
        for (size_t i = 0; i < dk; ++i)
          for (size_t j = 0; j < dv; ++j) {
            const double now = token.decay[call.rate_of(i)] * old[i * dv + j] + token.k.values[i] * token.learnt[j];
            dq_head[i] += scale * now * out[j];
            dstate[i * dv + j] += scale * token.q.values[i] * out[j];
            dk_head[i] += dstate[i * dv + j] * token.learnt[j];
            dlearnt[j] += dstate[i * dv + j] * token.k.values[i];
          }
        double dbeta = 0;
        std::vector<double> dlog_decay(call.rates);
        for (size_t j = 0; j < dv; ++j) {
          dbeta += dlearnt[j] * token.error[j];
          derror[j] = token.beta * dlearnt[j];
          dv_all[(t * heads + n) * dv + j] = derror[j] + call.skip[n] * out[j];
          dskip[n] += out[j] * call.v[(t * heads + n) * dv + j];
        }
        for (size_t i = 0; i < dk; ++i)
          for (size_t j = 0; j < dv; ++j) {
            const double decayed = token.decay[call.rate_of(i)] * old[i * dv + j];
            if (call.is_delta()) {
              dk_head[i] -= decayed * derror[j];
              dstate[i * dv + j] -= token.k.values[i] * derror[j];
            }
            dlog_decay[call.rate_of(i)] += dstate[i * dv + j] * decayed;
            dstate[i * dv + j] *= token.decay[call.rate_of(i)];
          }
        token.q.add_gradient(dq, call.key_at(t, n), dq_head);
        token.k.add_gradient(dk_all, call.key_at(t, n), dk_head);
        call.add_gates(gates, token, t, n, dlog_decay, dbeta);
      }
    }
  store(args.dq, dq), store(args.dk, dk_all), store(args.dv, dv_all), store(args.da, gates.da);
  if (call.is_delta()) store(args.db, gates.db);
  for (const auto& [to, sums] :
       {std::pair{args.drate, &gates.drate}, {args.dshift, &gates.dshift}, {args.dskip, &dskip}}) {
    if (!to) continue;
    std::ranges::transform(*sums, load(to), sums->begin(), std::plus<>());
    store(to, *sums);
  }
}

}  // namespace weft::reference
