// evaluate: the mean loss of a model over a text, exact over every token, shared among data-parallel ranks.
#pragma once
#include "weft/comm/communicator.h"
#include "weft/data/batches.h"
#include "weft/models/decoder.h"

namespace weft {

struct EvalOptions {
  int64_t seq_len = 0;
  int64_t rows = 1;         // per rank and forward pass
  bool documents = false;   // attention stops at the ends of documents
  int64_t max_batches = 0;  // 0: all of the text
};

struct EvalResult {
  double loss = 0;          // nats per token
  int64_t num_targets = 0;  // tokens predicted
};

// Collective over `ranks`; every rank gets the same result. Windows do not overlap: a token sees what stands before
// it in its window only.
EvalResult evaluate(Context& context, Communicator& ranks, Decoder& model, const TokenPart& part,
                    const EvalOptions& options);

}  // namespace weft
