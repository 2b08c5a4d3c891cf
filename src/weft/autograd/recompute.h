// recompute: saves only the input of a function, and runs the function again when its gradient is wanted.
// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
#pragma once
#include "weft/autograd/saved_inputs.h"
#include "weft/autograd/tape.h"

namespace weft {

template <class F>
struct Recompute {
  static constexpr std::string_view kName = "recompute";
  F function;
  SavedInput x = {};

  Tensor forward(Context& context, const Tensor& in) {
    Tape* const outer = std::exchange(context.tape, nullptr);
    if (outer) x = SavedInput(context, *outer, in);
    Tensor y = function(Var{in, &context}).value;
    context.tape = outer;
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) {
    Tape& outer = *context.tape;
    Tape& inner = outer.borrow_inner();
    context.tape = &inner;
    const Var again = inner.leaf(context, x.take());
    const Var y = function(again);
    inner.backward(y, dy);
    context.tape = &outer;
    Tensor dx = inner.grad(again);
    outer.return_inner(inner);
    return dx;
  }
};

// y = function(x); the result and all gradients are bitwise those of calling the function directly.
template <class F>
Var recompute(F function, const Var& x) {
  return apply(*x.context, Recompute<F>{std::move(function)}, x);
}

}  // namespace weft
