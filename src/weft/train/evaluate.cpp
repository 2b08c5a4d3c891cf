// evaluate: the loop over windows.
#include "weft/train/evaluate.h"

#include <algorithm>

#include "weft/train/pass_of.h"

namespace weft {

EvalResult evaluate(Context& context, Communicator& ranks, Decoder& model, const TokenPart& part,
                    const EvalOptions& options) {
  const EvalBatches batches(part,
                            {.seq_len = int32_t(options.seq_len),
                             .global_batch = int32_t(options.rows * ranks.size()),
                             .documents = options.documents},
                            options.max_batches);
  const Tensor sums = context.empty(DType::f64, {2});
  double* const loss_sum = sums.data<double>();
  double* const num_targets = loss_sum + 1;
  *loss_sum = *num_targets = 0;
  Brackets none;
  Batch batch;
  std::vector<AttentionSpan> spans;
  for (int64_t b = 0; b < batches.num_batches(); ++b) {
    batches.fill(b, int32_t(ranks.rank() * options.rows), int32_t(options.rows), batch);
    if (batch.num_targets == 0) continue;
    const Pass pass = pass_of(batch, 0, spans);
    *loss_sum += double(*model.loss(context, pass, batch.targets.data(), 0, none).value.data<float>());
    *num_targets += double(batch.num_targets);
  }
  ranks.all_reduce(sums);
  return {*loss_sum / std::max(*num_targets, 1.0), int64_t(*num_targets)};
}

}  // namespace weft
