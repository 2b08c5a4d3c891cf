// Pass: one forward pass over packed tokens: which tokens, where they stand, and what dropout depends on.
#pragma once
#include "weft/autograd/ops/attention.h"
#include "weft/autograd/ops/dropout.h"
#include "weft/base/philox.h"
#include "weft/parallel/context/context_attention.h"

namespace weft {

struct Pass {
  const int32_t* ids = nullptr;  // [T], host memory that outlives the tape
  int64_t num_tokens = 0;
  AttentionPlan attention;
  // When the tokens of a micro-batch are spread over a group: both, and attention.spans are not read.
  const ContextPlan* context_plan = nullptr;
  ContextParallel* context_parallel = nullptr;
  bool is_training = false;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_token = 0;  // index of the micro-batch's token 0 among all tokens of the step's global batch

  // Dropout at `site` for elements of `width` per token: a function of (seed, step, site, global element), on any
  // mesh.
  RowDropout dropout(float p, uint64_t site, int64_t width) const {
    DropoutKey key = attention_dropout(p, site);
    key.first = uint64_t(first_token) * uint64_t(width);
    if (!context_plan) return {key};
    return {key, context_plan->layout().token_spans()};
  }
  // The same for the probabilities of attention, whose spans know the tokens.
  DropoutKey attention_dropout(float p, uint64_t site) const {
    if (!is_training || p <= 0) return {};
    return {.p = p, .seed = seed, .stream = site ^ (uint64_t(step) * 0x9E3779B97F4A7C15u)};
  }
};

}  // namespace weft
