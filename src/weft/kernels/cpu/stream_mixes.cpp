// Loops over tokens inside, which the compiler turns into vectors.
#include "weft/kernels/cpu/stream_mixes.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "weft/kernels/stream_mix.h"

namespace weft::cpu {
namespace {

// A number of each of some tokens.
struct OfTokens {
  alignas(64) float x[kMixesAtOnce];

  OfTokens() = default;
  explicit OfTokens(float all) { std::fill_n(x, kMixesAtOnce, all); }
};

template <class F>
OfTokens of_each(const OfTokens& a, const OfTokens& b, F&& f) {
  OfTokens y;
  for (int i = 0; i < kMixesAtOnce; ++i) y.x[i] = f(a.x[i], b.x[i]);
  return y;
}
OfTokens operator+(const OfTokens& a, const OfTokens& b) { return of_each(a, b, std::plus()); }
OfTokens operator-(const OfTokens& a, const OfTokens& b) { return of_each(a, b, std::minus()); }
OfTokens operator*(const OfTokens& a, const OfTokens& b) { return of_each(a, b, std::multiplies()); }
OfTokens operator/(const OfTokens& a, const OfTokens& b) { return of_each(a, b, std::divides()); }
OfTokens larger(const OfTokens& a, const OfTokens& b) {
  return of_each(a, b, [](float x, float y) { return weft::larger(x, y); });
}

// Rows of `count` numbers of some tokens, `stride` apart, and the same by number. Missing tokens are the last one.
template <int N>
void gather(OfTokens (&to)[N][N], const float* from, int64_t stride, int tokens, int streams) {
  for (int m = 0; m < N; ++m)
    for (int n = 0; n < N; ++n)
      for (int i = 0; i < kMixesAtOnce; ++i)
        to[m][n].x[i] = m < streams && n < streams ? from[std::min(i, tokens - 1) * stride + m * streams + n] : 0.0f;
}
template <int N>
void scatter(float* to, const OfTokens (&from)[N][N], int64_t stride, int tokens, int streams) {
  for (int m = 0; m < streams; ++m)
    for (int n = 0; n < streams; ++n)
      for (int i = 0; i < tokens; ++i) to[i * stride + m * streams + n] = from[m][n].x[i];
}

template <int N, class Keep>
void make(OfTokens (&mix)[N][N], const float* logits, int64_t stride, int tokens, int streams, const StreamRule& rule,
          Keep&& keep) {
  OfTokens of[N][N];
  gather(of, logits, stride, tokens, streams);
  const auto exp = [](const OfTokens& x) {
    OfTokens powers = x;
    for (float& each : powers.x) each = std::exp(each);
    return powers;
  };
  make_mix(
      mix, streams, rule.mix_steps, rule.eps, [&](int m, int n) { return of[m][n]; }, exp, keep);
}

// body<N>(at, tokens): of matrices of N in which those of so many streams lie.
template <class Body>
void for_groups(int64_t tokens, int streams, Body&& body) {
  for (int64_t at = 0; at < tokens; at += kMixesAtOnce) {
    const int count = int(std::min<int64_t>(kMixesAtOnce, tokens - at));
    streams <= 4 ? body.template operator()<4>(at, count) : body.template operator()<8>(at, count);
  }
}

}  // namespace

void make_mixes(float* mixes, int64_t tokens, int streams, const StreamRule& rule) {
  const int64_t stride = int64_t(streams) * streams;
  for_groups(tokens, streams, [&]<int N>(int64_t at, int count) {
    OfTokens mix[N][N];
    make(mix, mixes + at * stride, stride, count, streams, rule, [](int, int, const OfTokens&) {});
    scatter(mixes + at * stride, mix, stride, count, streams);
  });
}

void make_mixes_backward(float* gradients, const float* logits, int64_t stride, int64_t tokens, int streams,
                         const StreamRule& rule) {
  for_groups(tokens, streams, [&]<int N>(int64_t at, int count) {
    OfTokens mix[N][N], gradient[N][N], divisors[num_divisions(int(kMostMixSteps))][N];
    make(mix, logits + at * stride, stride, count, streams, rule,
         [&](int k, int i, const OfTokens& divisor) { divisors[k][i] = divisor; });
    gather(gradient, gradients + at * stride, stride, count, streams);
    make_mix_backward(gradient, mix, streams, rule.mix_steps, rule.eps, [&](int k, int i) { return divisors[k][i]; });
    scatter(gradients + at * stride, gradient, stride, count, streams);
  });
}

}  // namespace weft::cpu
