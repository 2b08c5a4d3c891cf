// The weights by which a token's residual streams are mixed with each other: a matrix whose rows and columns each sum
// to one, so that mixing neither grows nor loses anything. Rows of exponentials that sum to one, plus eps, are
// divided by the sums of columns and rows in turn, plus eps, of columns first and last. Sources: Sinkhorn and Knopp,
// "Concerning nonnegative matrices and doubly stochastic matrices", 1967; Xie et al., "mHC: Manifold-Constrained
// Hyper-Connections", 2025.
#pragma once
#include "weft/kernels/streams_args.h"

// Read by nvcc these are functions of kernels.
#ifdef __CUDACC__
#define WEFT_MIX_FUNCTION __device__ constexpr
#else
#define WEFT_MIX_FUNCTION constexpr
#endif

namespace weft {

// How often the matrix is divided.
WEFT_MIX_FUNCTION int num_divisions(int steps) { return 2 * steps - 1; }

// T is a number, or as many of different tokens.
WEFT_MIX_FUNCTION float larger(float a, float b) { return a > b ? a : b; }

// Lines are columns or rows. keep(i, divisor): told what the i-th was divided by.
template <bool kOfColumns, int N, class T, class Keep>
WEFT_MIX_FUNCTION void divide_lines(T (&mix)[N][N], int streams, float eps, Keep&& keep) {
  T factors[N];
  for (int i = 0; i < N; ++i) {
    T sum = kOfColumns ? mix[0][i] : mix[i][0];
    for (int j = 1; j < N; ++j) sum = sum + (kOfColumns ? mix[j][i] : mix[i][j]);
    const T divisor = i < streams ? sum + T(eps) : T(1);
    keep(i, divisor);
    factors[i] = T(1) / divisor;
  }
  for (int m = 0; m < N; ++m)
    for (int n = 0; n < N; ++n) mix[m][n] = mix[m][n] * factors[kOfColumns ? n : m];
}

// Undoes that in the matrix, and takes the gradient of what it became to that of what it was.
template <bool kOfColumns, int N, class T, class Kept>
WEFT_MIX_FUNCTION void divide_lines_backward(T (&gradient)[N][N], T (&mix)[N][N], Kept&& kept) {
  for (int i = 0; i < N; ++i) {
    const T divisor = kept(i), factor = T(1) / divisor;
    T along = T(0);
    for (int j = 0; j < N; ++j) {
      const int m = kOfColumns ? j : i, n = kOfColumns ? i : j;
      along = along + gradient[m][n] * mix[m][n];
    }
    for (int j = 0; j < N; ++j) {
      const int m = kOfColumns ? j : i, n = kOfColumns ? i : j;
      gradient[m][n] = (gradient[m][n] - along) * factor;
      mix[m][n] = mix[m][n] * divisor;
    }
  }
}

// The matrix of `streams` streams in one of N, the rest of which is 0. logit(m, n): of which it is made; exp: of T;
// keep(k, i, divisor): told what line i was divided by in the k-th division, a column where k is even.
template <int N, class T, class Logit, class Exp, class Keep>
WEFT_MIX_FUNCTION void make_mix(T (&mix)[N][N], int streams, int steps, float eps, Logit&& logit, Exp&& exp,
                                Keep&& keep) {
  for (int m = 0; m < N; ++m) {
    const bool is_row = m < streams;
    for (int n = 0; n < N; ++n) mix[m][n] = is_row && n < streams ? logit(m, n) : T(0);
    T most = mix[m][0], sum = T(0);
    for (int n = 1; n < N; ++n)
      if (n < streams) most = larger(most, mix[m][n]);
    for (int n = 0; n < N; ++n) {
      if (is_row && n < streams) mix[m][n] = exp(mix[m][n] - most);
      sum = sum + mix[m][n];
    }
    for (int n = 0; n < N; ++n)
      if (is_row && n < streams) mix[m][n] = mix[m][n] / sum + T(eps);
  }
  const auto divide = [&]<bool kOfColumns>(int k) {
    divide_lines<kOfColumns>(mix, streams, eps, [&](int i, T divisor) { keep(k, i, divisor); });
  };
  divide.template operator()<true>(0);
  for (int k = 1; k < num_divisions(steps); k += 2)
    divide.template operator()<false>(k), divide.template operator()<true>(k + 1);
}

// The gradient of logits, left in `gradient`, which is that of the matrix when it comes; the matrix ends as it was
// before it was divided. kept(k, i): what make_mix() divided by.
template <int N, class T, class Kept>
WEFT_MIX_FUNCTION void make_mix_backward(T (&gradient)[N][N], T (&mix)[N][N], int streams, int steps, float eps,
                                         Kept&& kept) {
  const auto undo = [&]<bool kOfColumns>(int k) {
    divide_lines_backward<kOfColumns>(gradient, mix, [&](int i) { return kept(k, i); });
  };
  for (int k = num_divisions(steps) - 1; k > 0; k -= 2)
    undo.template operator()<true>(k), undo.template operator()<false>(k - 1);
  undo.template operator()<true>(0);
  for (int m = 0; m < N; ++m) {
    T along = T(0);
    for (int n = 0; n < N; ++n)
      if (m < streams && n < streams) along = along + gradient[m][n] * (mix[m][n] - T(eps));
    for (int n = 0; n < N; ++n)
      if (m < streams && n < streams) gradient[m][n] = (gradient[m][n] - along) * (mix[m][n] - T(eps));
  }
}

}  // namespace weft

#undef WEFT_MIX_FUNCTION
