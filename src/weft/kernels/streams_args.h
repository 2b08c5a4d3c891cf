// Of residual streams: several rows of H numbers that a token has in place of one, of which each part of a layer
// reads a weighted sum and to each of which it writes with a weight of its own; all weights depend on the token.
// Sources: Zhu et al., "Hyper-Connections", 2024; Xie et al., "mHC: Manifold-Constrained Hyper-Connections", 2025.
// Streams are not mixed with each other here, as in Tencent's Hy4, 2026.
#pragma once
#include "weft/tensor/tensor.h"

namespace weft {

inline constexpr int64_t kMostStreams = 8;

struct StreamRule {
  float magnitude = 2;     // of weights of writing
  float eps = 1e-6f;       // added to all weights
  float norm_eps = 1e-6f;  // of the norm of a token's streams, which are N H numbers
};

// With p = products / sqrt(mean(x^2) + norm_eps):  read = sigmoid(p scale[0] + base) + eps  of the first N products,
// gates = magnitude sigmoid(p scale[1] + base) + eps  of the others;  y = sum over streams of read[n] x[n].
struct ReadStreamsArgs {
  Tensor y;         // out [T, H]
  Tensor gates;     // out [T, N] f32, of writing; optional
  Tensor rstd;      // out [T] f32
  Tensor x;         // [T, N H]
  Tensor products;  // [T, 2 N] f32, or [T, N] without gates
  Tensor base;      // [2 N] or [N], in the dtype of x
  Tensor scale;     // [2] or [1], the same
  StreamRule rule;
};

struct ReadStreamsBackwardArgs {
  Tensor dx;         // out [T, N H]; may be dsum
  Tensor dproducts;  // out, like products
  Tensor dlogits;    // out, like products: of what sigmoids are taken of; summed over tokens, the gradient of base
  Tensor dscales;    // out [T, 2] or [T, 1] f32: what each token adds to the gradient of scale
  Tensor dy;         // [T, H]
  Tensor dsum;       // [T, N H], optional: the gradient that goes around
  Tensor dgates;     // [T, N] f32, optional
  Tensor x, products, rstd, base, scale;
  StreamRule rule;
};

// y[n] = x[n] + gates[n] branch
struct WriteStreamsArgs {
  Tensor y;       // out [T, N H]; may be x
  Tensor x;       // [T, N H], optional: 0
  Tensor branch;  // [T, H]
  Tensor gates;   // [T, N] f32, optional: 1
};

// The gradient of x is dy.
struct WriteStreamsBackwardArgs {
  Tensor dbranch;        // out [T, H]
  Tensor dgates;         // out [T, N] f32, with gates
  Tensor dy;             // [T, N H]
  Tensor branch, gates;  // both or neither
};

}  // namespace weft
