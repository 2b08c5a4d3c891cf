// head_loss: chunk by chunk, as HeadLossOp, with the statistics of every rank's columns combined for each chunk.
#include "weft/parallel/head_loss.h"

#include "weft/parallel/score_loss.h"

namespace weft {
namespace {

struct CutHeadLossOp {
  static constexpr std::string_view kName = "head_loss";
  Communicator& group;
  HeadView head;
  const int32_t* targets;
  float grad_scale;
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x) {
    const int64_t num_tokens = x.rows(), largest = even_cut(head.weight->placement.whole[0], 0, group.size()).count;
    // The same chunks on every rank, whoever holds one column more.
    const int64_t chunk = std::min(num_tokens, head_rows_per_chunk(context, largest, x.dtype()));
    const bool wants_grad = context.tape && grad_scale != 0;
    const Tensor losses = context.empty(Context::wide(x.dtype()), {num_tokens, 1});
    const Tensor logits = context.empty(x.dtype(), {chunk, head.weight->shape[0]});
    if (wants_grad) dx = context.empty_like(x);
    for (int64_t begin = 0; begin < num_tokens; begin += chunk)
      run_chunk(context, x, begin, logits.slice_rows(0, std::min(chunk, num_tokens - begin)), losses, wants_grad);
    Tensor loss = context.empty(losses.dtype(), {1});
    context.kernels.sum_rows(context.stream, loss, losses, false);
    return loss;
  }
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }

 private:
  void run_chunk(Context& context, const Tensor& x, int64_t begin, const Tensor& logits, const Tensor& losses,
                 bool wants_grad) {
    const Kernels& k = context.kernels;
    const int64_t rows = logits.dim(0), first = head.weight->placement.begin[0];
    const Tensor x_chunk = x.slice_rows(begin, rows);
    const Tensor capped = head_logits(context, head, logits, x_chunk, wants_grad);
    const Tensor mine = context.empty(losses.dtype(), {rows, 3});
    const Tensor all = context.empty(losses.dtype(), {group.size(), rows, 3});
    k.cross_entropy_stats(context.stream, mine, logits, targets + begin, first);
    group.all_gather(all, mine);
    const Tensor lse = context.empty(losses.dtype(), {rows});
    k.cross_entropy_combine(context.stream, losses.slice_rows(begin, rows).reshape({rows}), lse, all,
                            targets + begin);
    if (!wants_grad) return;
    k.cross_entropy_gradient(context.stream, logits, lse, {}, targets + begin, first, grad_scale);
    head_backward(context, head, capped, dx.slice_rows(begin, rows), logits, x_chunk);
  }
};

}  // namespace

Var head_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets, float grad_scale,
              const Var& hidden) {
  const Var x = tensor.enter(hidden);
  if (head.scores_texts) check_labels(head, targets, x.value.rows());
  if (head.scores_texts && tensor.rank() > 0) grad_scale = 0;
  if (tensor.size() == 1 || head.scores_texts) return apply(*x.context, HeadLossOp{head, targets, grad_scale}, x);
  return apply(*x.context, CutHeadLossOp{tensor.group(), head, targets, grad_scale}, x);
}

}  // namespace weft
