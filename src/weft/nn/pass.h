// Pass: one forward pass over packed tokens: which tokens, where they stand, and what dropout depends on.
#pragma once
#include "weft/autograd/ops/attention.h"
#include "weft/autograd/ops/dropout.h"
#include "weft/base/philox.h"
#include "weft/nn/lora_set.h"
#include "weft/parallel/context/context_attention.h"
#include "weft/parallel/expert/routing_replay.h"

namespace weft {

class WantedRows;

struct Pass {
  const int32_t* ids = nullptr;  // [T], host memory that outlives the tape
  bool ids_are_there = false;    // they lie where tensors do, instead
  int64_t num_tokens = 0;
  int64_t seq_len = 0;  // of a row of the batch; 0: all tokens are one row
  AttentionPlan attention;
  TokenRuns runs;  // the tokens by sequence, for layers with a state; not read with attention.cache
  // When the tokens of a micro-batch are spread over a group: both, and attention.spans are not read.
  const ContextPlan* context_plan = nullptr;
  ContextParallel* context_parallel = nullptr;
  bool is_training = false;
  bool uses_adapters = true;  // false: the model without them
  // Adapters that belong to rows and not to the model; null where it is never asked for any. With none of them a row
  // may have other bits than with null.
  const RowAdapters* lora = nullptr;
  const Pass* local = nullptr;         // of local layers, where their spans are others; it outlives this
  const WantedRows* wanted = nullptr;  // the rows whose results are asked for; null: all
  uint64_t seed = 0;
  int64_t step = 0;
  float loss_scale = 0;               // what a loss that a layer adds for a token is multiplied with
  std::span<const TokenSpan> tokens;  // where the T tokens stand in the step's global batch; outlives the tape
  RoutingReplay* routing = nullptr;   // of layers with experts, in a step of training; null: they choose

  // Dropout at `site`: a function of (seed, step, site, global element), on any mesh.
  DropoutKey dropout_key(float p, uint64_t site) const {
    if (!is_training || p <= 0) return {};
    return {.p = p, .seed = seed, .stream = site ^ (uint64_t(step) * 0x9E3779B97F4A7C15u)};
  }
  // x[rows, H]: rows of the T tokens, from `first_row` on.
  Var dropout(const Var& x, float p, uint64_t site, int64_t first_row) const {
    const DropoutKey key = dropout_key(p, site);
    return key.p > 0 ? apply(*x.context, DropoutOp{key, tokens, first_row}, x) : x;
  }
};

}  // namespace weft
