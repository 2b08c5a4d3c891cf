// Of residual streams: several rows of H numbers that a token has in place of one, of which each part of a layer
// reads a weighted sum and to each of which it writes with a weight of its own, while they may be mixed with each
// other; all weights depend on the token.
// Sources: Zhu et al., "Hyper-Connections", 2024; Xie et al., "mHC: Manifold-Constrained Hyper-Connections", 2025;
// with mixing as in DeepSeek V4, without as in Tencent's Hy4, 2026.
#pragma once
#include "weft/tensor/tensor.h"

namespace weft {

inline constexpr int64_t kMostStreams = 8;
inline constexpr int64_t kMostMixSteps = 32;

struct StreamRule {
  float magnitude = 2;     // of weights of writing
  float eps = 1e-6f;       // added to weights of reading, and where those of mixing are made
  float gate_eps = 1e-6f;  // added to weights of writing
  float norm_eps = 1e-6f;  // of the norm of a token's streams, which are N H numbers
  int mix_steps = 0;       // of Sinkhorn and Knopp's (stream_mix.h)
};

// Of which weights the i-th product is: 0, of reading, 1, of writing, 2, of mixing.
constexpr int64_t kind_of_product(int64_t i, int64_t streams) { return i < 2 * streams ? i / streams : 2; }

// With p = products / sqrt(mean(x^2) + norm_eps):  read = sigmoid(p scale[0] + base) + eps  of the first N products,
// gates = magnitude sigmoid(p scale[1] + base) + gate_eps  of the next N, mix made of  p scale[2] + base  of the last
// N N (stream_mix.h);  y = sum over streams of read[n] x[n].
// L, the number of products, is N, 2 N with gates, or 2 N + N N where streams are also mixed; S, of scales, 1 to 3.
struct ReadStreamsArgs {
  Tensor y;         // out [T, H]
  Tensor gates;     // out [T, N] f32, of writing; optional
  Tensor mix = {};  // out [T, N N] f32, of stream m in what stream n becomes at [m, n]; optional, beside gates
  Tensor rstd;      // out [T] f32
  Tensor x;         // [T, N H]
  Tensor products;  // [T, L] f32
  Tensor base;      // [L], in the dtype of x
  Tensor scale;     // [S], the same
  StreamRule rule;
};

struct ReadStreamsBackwardArgs {
  Tensor dx;         // out [T, N H]; may be dsum
  Tensor dproducts;  // out, like products
  Tensor dlogits;    // out, like products: of p scale + base; summed over tokens, the gradient of base
  Tensor dscales;    // out [T, S] f32: what each token adds to the gradient of scale
  Tensor dy;         // [T, H]
  Tensor dsum;       // [T, N H], optional: the gradient that goes around
  Tensor dgates;     // [T, N] f32, optional
  Tensor dmix = {};  // [T, N N] f32, optional
  Tensor x, products, rstd, base, scale;
  StreamRule rule;
};

// y[n] = sum over m of mix[m, n] x[m], + gates[n] branch
struct WriteStreamsArgs {
  Tensor y;         // out [T, N H]; may be x, without mix
  Tensor x;         // [T, N H], optional: 0
  Tensor branch;    // [T, H]
  Tensor gates;     // [T, N] f32, optional: 1
  Tensor mix = {};  // [T, N N] f32, optional, of x: the identity
};

// Without mix the gradient of x is dy.
struct WriteStreamsBackwardArgs {
  Tensor dx = {};           // out [T, N H], with mix
  Tensor dbranch;           // out [T, H]
  Tensor dgates;            // out [T, N] f32, with gates
  Tensor dmix = {};         // out [T, N N] f32, with mix
  Tensor dy;                // [T, N H]
  Tensor branch, gates;     // both or neither
  Tensor x = {}, mix = {};  // both or neither, beside gates
};

}  // namespace weft
