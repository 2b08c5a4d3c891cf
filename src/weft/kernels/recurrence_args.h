// Arguments of kernels that hand a state from token to token in place of keys and values: causal convolution, and
// recurrences of matrices.
#pragma once
#include <cstdint>

#include "weft/kernels/activation.h"
#include "weft/tensor/tensor.h"

namespace weft {

// Rows [begin, end) that follow each other in one sequence. What the row before them left is states[from], zeros
// where that is -1; what the last of them leaves becomes states[to], and is dropped at -1. Runs of one sequence that
// follow each other go on: each begins with what the one before it leaves. Else no run reads or writes the state that
// another writes; of those that go on, the last may write the one that the first reads.
struct TokenRun {
  int32_t begin = 0, end = 0;
  int32_t from = -1, to = -1;
};

// The runs of a call: host memory that outlives it. They ascend, and are all of its T rows.
struct TokenRuns {
  const TokenRun* runs = nullptr;
  int count = 0;

  const TokenRun* begin() const { return runs; }
  const TokenRun* end() const { return runs + count; }
  const TokenRun& operator[](int i) const { return runs[i]; }
  // Whether run i goes on where the one before it ends.
  bool goes_on(int i) const { return i > 0 && i < count && runs[i].from >= 0 && runs[i].from == runs[i - 1].to; }
  // Run i with those before it that it goes on from.
  TokenRun whole(int i) const {
    TokenRun run = runs[i];
    for (; goes_on(i); --i) run.begin = runs[i - 1].begin, run.from = runs[i - 1].from;
    return run;
  }
};

inline constexpr int64_t kMostConvWidth = 8;
inline constexpr int64_t kMostKeyDim = 256;  // of a state

// y[t, c] = f(bias[c] + sum over j < W of weight[c, j] * x[t - W + 1 + j, c]), where rows before a run are its
// state's. Source: Gu and Dao, "Mamba", 2023.
struct CausalConvArgs {
  Tensor y;       // [T, C]
  Tensor x;       // [T, C]
  Tensor weight;  // [C, W], W at most kMostConvWidth
  Tensor bias;    // [C], optional
  Tensor states;  // [S, W - 1, C], the last rows of x; optional where no run has one
  TokenRuns runs;
  Activation f = Activation::silu;  // or identity
};

// Of runs that begin with zeros and keep nothing.
struct CausalConvBackwardArgs {
  Tensor dx;       // [T, C]
  Tensor dweight;  // [C, W] f32, optional
  Tensor dbias;    // [C] f32, optional
  bool accumulate = false;
  Tensor dy, x, weight, bias;
  TokenRuns runs;
  Activation f = Activation::silu;
};

// What a token does to a head's state, a matrix S[Dk, Dv], with step = softplus(a + shift):
//   delta      the gated delta rule: the state forgets, and learns what it did not know. With beta =
//              beta_scale sigmoid(b), k' = k / |k| and q' = q / (|q| sqrt(Dk)), where |x| = sqrt(x . x + 1e-6),
//                S = exp(-exp(rate) step) S;  S += k' (beta (v - S^T k'))^T;  y = S^T q'.
//              Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024. Where a has a number to each
//              element of a key, each row of S forgets at a rate of its own: Kimi Team, "Kimi Linear", 2025.
//   selective  the selective state space of Mamba-2, which calls k B, q C, v x, a dt, and exp(rate) -A:
//                S = exp(-exp(rate) step) S + k (step v)^T;  y = S^T q + skip v.
//              Source: Dao and Gu, "Transformers are SSMs", 2024.
enum class StateRule : uint8_t { delta, selective };

// Value head n has key head n / (N / K).
struct RecurrenceArgs {
  StateRule rule = StateRule::delta;
  Tensor y;     // [T, N, Dv]
  Tensor q, k;  // [T, K, Dk], Dk at most kMostKeyDim
  Tensor v;     // [T, N, Dv]
  Tensor a;     // [T, N] f32; by the delta rule perhaps [T, N Dk]
  Tensor b;     // [T, N] f32, of the delta rule alone
  float beta_scale = 1;
  Tensor rate;    // [N], in the dtype of q
  Tensor shift;   // as a row of a, in the dtype of q
  Tensor skip;    // [N], in the dtype of q, of selective states alone
  Tensor states;  // [S, N, Dk, Dv] f32; optional where no run has one
  TokenRuns runs;
};

// Of runs that begin with zeros and keep nothing; states are computed again.
struct RecurrenceBackwardArgs {
  StateRule rule = StateRule::delta;
  Tensor dq, dk, dv;            // like q, k, v
  Tensor da, db;                // like a, b; db of the delta rule alone
  Tensor drate, dshift, dskip;  // like the parameters, f32, added to; optional together, but dskip of selective
                                // states alone
  Tensor dy, q, k, v, a, b, rate, shift, skip;
  float beta_scale = 1;
  TokenRuns runs;
};

// How many numbers say how fast a head forgets: 1, or one to each row of its state.
template <class Args>
int64_t rates_of_head(const Args& args) {
  return args.rate.numel() > 0 ? args.a.dim(1) / args.rate.numel() : 1;
}

}  // namespace weft
