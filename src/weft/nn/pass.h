// Pass: one forward pass over packed tokens: which tokens, where they stand, and what dropout depends on.
#pragma once
#include "weft/autograd/ops/attention.h"
#include "weft/base/philox.h"

namespace weft {

struct Pass {
  const int32_t* ids = nullptr;  // [T], host memory that outlives the tape
  int64_t num_tokens = 0;
  AttentionPlan attention;
  bool is_training = false;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_token = 0;  // index of token 0 among all tokens of the step's global batch

  // Dropout at `site` for elements of `width` per token: a function of (seed, step, site, global element), on any
  // mesh.
  DropoutKey dropout(float p, uint64_t site, int64_t width) const {
    if (!is_training || p <= 0) return {};
    return {.p = p,
            .seed = seed,
            .stream = site ^ (uint64_t(step) * 0x9E3779B97F4A7C15u),
            .first = uint64_t(first_token) * uint64_t(width)};
  }
};

}  // namespace weft
