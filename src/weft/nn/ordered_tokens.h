// OrderedTokens: what layers that read a sequence in its order see of a pass: all its tokens, of this rank's heads;
// or, where a sequence's tokens are spread over ranks, all tokens of some of these.
#pragma once
#include "weft/autograd/ops/recurrence.h"
#include "weft/nn/pass.h"

namespace weft {

class OrderedTokens {
 public:
  // heads: of the rank, which its neighbours of the context share; the pass outlives this.
  OrderedTokens(const Pass& pass, int64_t heads);

  // Which of them are computed here, over so many tokens. None, perhaps.
  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  int64_t tokens() const { return tokens_; }

  // x[T, C] -> [tokens, C / heads * count]
  Var gathered(const Var& x) const;
  // y[tokens, count * width] -> [T, heads * width]
  Var scattered(const Var& y, int64_t width) const;

  // Where the tokens stand, and the layer's states number `which` in the pass' cache, made when there are none.
  // state: of one sequence, behind a first dim.
  Recurrence past(Context& context, int layer, int which, DType dtype, Shape state) const;

 private:
  ContextCall call() const {
    return {.parallel = *pass_->context_parallel, .plan = *pass_->context_plan, .rule = {}};
  }

  const Pass* pass_;
  int64_t heads_, first_ = 0, count_, tokens_;
};

}  // namespace weft
