// evaluate: the mean loss of a model over a text, exact over every token, shared among data-parallel ranks.
#pragma once
#include <functional>

#include "weft/base/function_ref.h"
#include "weft/comm/communicator.h"
#include "weft/data/batches.h"
#include "weft/pretrained/forward_model.h"

namespace weft {

struct EvalOptions {
  int64_t seq_len = 0;
  int64_t rows = 1;        // per data-parallel rank and forward pass
  bool documents = false;  // attention stops at the ends of documents
  int64_t max_rows = 0;    // of all ranks together; 0: all of the text
  // Asked now and then, on every rank, and the same on all of them: whether to leave the rest out.
  std::function<bool()> is_over = {};
};

struct EvalResult {
  double loss = 0;          // nats per token
  int64_t num_targets = 0;  // tokens predicted
  bool is_whole = true;     // nobody asked for less
};

// Of this rank's part of the summed loss and of the tokens. Collective; every rank gets the same result.
EvalResult mean_over(Communicator& world, double loss_sum, int64_t num_targets);

// Who shares the work: ranks of the same index read the same windows, and one of them counts their targets.
struct EvalRanks {
  Communicator& world;
  int index = 0, count = 1;
  bool counts_targets = true;
};

// Collective over the world; every rank gets the same result. loss_sum: this rank's part of the summed loss of a
// batch, of which those of all ranks are added. Windows do not overlap: a token sees what stands before it in its
// window only.
EvalResult evaluate(const EvalRanks& ranks, const TokenPart& part, const EvalOptions& options,
                    FunctionRef<double(const Batch&)> loss_sum);

// The same of a model that only runs forward, on the ranks of its mesh.
EvalResult evaluate(ForwardModel& model, const TokenPart& part, const EvalOptions& options);

}  // namespace weft
