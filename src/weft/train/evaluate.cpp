// evaluate: the loop over windows.
#include "weft/train/evaluate.h"

#include <algorithm>

#include "weft/data/packed_rows.h"
#include "weft/train/pass_of.h"

namespace weft {

namespace {

template <class Batches>
EvalResult evaluate_on(const EvalRanks& ranks, const Batches& batches, const EvalOptions& options,
                       FunctionRef<double(const Batch&)> loss_sum) {
  double loss = 0;
  int64_t num_targets = 0;
  Batch batch;
  constexpr int64_t kBetween = 8;  // batches, so that stages of a pipeline do not wait for each other after each
  bool is_over = false;
  // Every rank takes part in every batch, also where none of its rows has a target left: others may wait for it.
  for (int64_t b = 0; b < batches.num_batches() && !is_over; ++b) {
    batches.fill(b, int32_t(ranks.index * options.rows), int32_t(options.rows), batch);
    loss += loss_sum(batch);
    if (ranks.counts_targets) num_targets += batch.num_targets;
    is_over = options.is_over && b % kBetween == kBetween - 1 && options.is_over();
  }
  EvalResult result = mean_over(ranks.world, loss, num_targets);
  result.is_whole = !is_over;
  return result;
}

}  // namespace

EvalResult mean_over(Communicator& world, double loss_sum, int64_t num_targets) {
  Allocator memory;
  const Tensor sums = memory.empty(DType::f64, {2});
  double* const all = sums.data<double>();
  all[0] = loss_sum, all[1] = double(num_targets);
  world.all_reduce(sums);
  return {all[0] / std::max(all[1], 1.0), int64_t(all[1])};
}

EvalResult evaluate(const EvalRanks& ranks, const TokenPart& part, const EvalOptions& options,
                    FunctionRef<double(const Batch&)> loss_sum) {
  const BatchOptions how{.seq_len = int32_t(options.seq_len),
                         .global_batch = int32_t(options.rows * ranks.count),
                         .documents = options.documents};
  if (part.file->has_examples())
    return evaluate_on(ranks, PackedEvalBatches(part, how, options.max_rows), options, loss_sum);
  return evaluate_on(ranks, EvalBatches(part, how, options.max_rows), options, loss_sum);
}

EvalResult evaluate(ForwardModel& model, const TokenPart& part, const EvalOptions& options) {
  const Mesh& mesh = model.mesh();
  SequenceSpans spans;
  return evaluate({.world = mesh.world(),
                   .index = mesh.data_rank(),
                   .count = mesh.shape().dp(),
                   .counts_targets = model.has_result() && mesh.place().tp == 0},
                  part, options,
                  [&](const Batch& batch) { return model.loss(pass_of(batch, 0, spans), batch.targets.data()); });
}

}  // namespace weft
