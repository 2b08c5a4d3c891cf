// attend: queries, keys and values to attention's output, on one rank or spread over ranks.
#pragma once
#include "weft/nn/pass.h"

namespace weft {

// Which layer's attention it is.
struct AttentionLayer {
  int number = 0;  // of the cache
  AttentionRule rule;
  float dropout = 0;
  uint64_t dropout_site = 0;
};

// q[T, N, D], k[T, K, D], v[T, K, value D] -> [T, N, value D]; no v where the rule says that keys have it. `layer`,
// what `sinks` refer to and the pass outlive the tape. Of a pass of wanted rows q has these, k and v all rows.
// selection: of a pass whose ranks do not share texts; what it selects by stands for v.
Var attend(const AttentionLayer& layer, const Pass& pass, const Var& q, const Var& k, const Var& v,
           const AttentionSinks& sinks = {}, const KeySelection& selection = {});

}  // namespace weft
