// CausalConv, GatedDelta and SelectiveState: what stands in place of attention in layers that remember in a state;
// see RecurrenceArgs.
#pragma once
#include <optional>

#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// Where the tokens of a call stand: runs of sequences, and the states that they begin with and leave, if any. What
// the runs point to outlives the tape.
struct Recurrence {
  TokenRuns runs;
  Tensor states = {};
};

// Some rows of a parameter: those of the heads that are computed here.
struct ParamRows {
  Param& param;
  int64_t first = 0, count = 0;

  Tensor value() const { return param.value.slice_rows(first, count); }
  // To be added to; empty of a frozen one. The other rows' is zero if nobody adds to it.
  Tensor gradient(Context& context) const {
    if (!param.trainable) return {};
    if (!param.accumulate_next()) context.kernels.fill(context.stream, param.grad, 0);
    return param.grad.slice_rows(first, count);
  }
};

// x[T, C] -> f of its convolution with weight [C, W] and of bias [C], if any.
struct CausalConvOp {
  static constexpr std::string_view kName = "causal_conv";
  ParamRows weight;
  std::optional<ParamRows> bias;
  Recurrence past;
  Activation f = Activation::silu;  // or identity
  Tensor x = {};

  Tensor forward(Context& context, const Tensor& in);
  Tensor backward(Context& context, const Tensor& dy);
};

// How fast each head of a layer forgets: rate [N], and shift as a row of what steps are made of.
struct StateRates {
  ParamRows rate, shift;
};

// A call of both kernels, by either rule. What it keeps are inputs: parameters may lie elsewhere when it goes back.
struct RecurrenceCall {
  StateRates rates;
  std::optional<ParamRows> skip;  // of selective states
  float beta_scale = 1;           // of the delta rule
  Recurrence past;
  RecurrenceArgs inputs = {};  // rule, q, k, v, a and b alone

  Tensor forward(Context& context, const RecurrenceArgs& given);
  RecurrenceBackwardArgs backward(Context& context, const Tensor& dy);
};

// q and k [T, K, Dk], v [T, N, Dv], a [T, N] or [T, N Dk], b [T, N] -> [T, N, Dv].
struct GatedDeltaOp {
  static constexpr std::string_view kName = "gated_delta";
  RecurrenceCall call;

  Tensor forward(Context& context, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& a,
                 const Tensor& b);
  std::array<Tensor, 5> backward(Context& context, const Tensor& dy);
};

// q and k [T, K, Dk], v [T, N, Dv], a [T, N] -> [T, N, Dv].
struct SelectiveStateOp {
  static constexpr std::string_view kName = "selective_state";
  RecurrenceCall call;

  Tensor forward(Context& context, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& a);
  std::array<Tensor, 4> backward(Context& context, const Tensor& dy);
};

}  // namespace weft
