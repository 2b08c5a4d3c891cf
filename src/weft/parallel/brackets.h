// Brackets: what a strategy does with a group of parameters before and after the part of the model that uses it.
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

// Groups are numbered as Decoder::param_groups() lists them. Both calls return x itself or an op of x: what the op
// does forward happens before (enter) and after (leave) the group's forward, and what it does backward happens after
// (enter) and before (leave) the group's backward. The first group is entered with a Var without a value, and what
// leaves the last one is the result of the pass.
class Brackets {
 public:
  virtual ~Brackets() = default;
  virtual Var enter(size_t /*group*/, const Var& x) { return x; }
  virtual Var leave(size_t /*group*/, const Var& x) { return x; }
};

}  // namespace weft
