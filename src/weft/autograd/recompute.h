// recompute: saves only the inputs of a function, and runs the function again when its gradient is wanted.
// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
#pragma once
#include "weft/autograd/saved_inputs.h"
#include "weft/autograd/tape.h"

namespace weft {

// N: inputs beside the first one, which are kept as they are, since others need them too; some may be empty.
template <class F, size_t N>
struct Recompute {
  static constexpr std::string_view kName = "recompute";
  F function;
  SavedInput x = {};
  std::array<Tensor, N> more = {};

  template <class... More>
  Tensor forward(Context& context, const Tensor& in, const More&... others) {
    Tape* const outer = std::exchange(context.tape, nullptr);
    if (outer) x = SavedInput(context, *outer, in), more = {others...};
    Tensor y = function(Var{in, &context}, Var{others, &context}...).value;
    context.tape = outer;
    return y;
  }
  std::conditional_t<N == 0, Tensor, std::array<Tensor, N + 1>> backward(Context& context, const Tensor& dy) {
    return backward_of(context, dy, std::make_index_sequence<N>());
  }

 private:
  template <size_t... I>
  auto backward_of(Context& context, const Tensor& dy, std::index_sequence<I...>) {
    Tape& outer = *context.tape;
    Tape& inner = outer.borrow_inner();
    context.tape = &inner;
    const std::array<Var, N + 1> again{inner.leaf(context, x.take()),
                                       (more[I] ? inner.leaf(context, std::move(more[I])) : Var{})...};
    const Var y = function(again[0], again[I + 1]...);
    inner.backward(y, dy);
    context.tape = &outer;
    const auto gradient = [&](const Var& of) { return of ? inner.grad(of) : Tensor(); };
    std::array<Tensor, N + 1> d{gradient(again[0]), gradient(again[I + 1])...};
    outer.return_inner(inner);
    if constexpr (N == 0)
      return std::move(d[0]);
    else
      return d;
  }
};

// y = function(x, more...); the result and all gradients are bitwise those of calling the function directly.
template <class F, class... More>
Var recompute(F function, const Var& x, const More&... more) {
  return apply(*x.context, Recompute<F, sizeof...(More)>{std::move(function)}, x, more...);
}

}  // namespace weft
