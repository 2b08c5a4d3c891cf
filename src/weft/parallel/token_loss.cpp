// token_loss: chunks of rows with targets, first for their log-probabilities, then for gradients.
#include "weft/parallel/token_loss.h"

#include <algorithm>
#include <array>
#include <vector>

#include "weft/parallel/score_loss.h"
#include "weft/parallel/vocab_chunk.h"
#include "weft/tensor/host_access.h"
#include "weft/tensor/wide_values.h"

namespace weft {
namespace {

struct TokenLossOp {
  static constexpr std::string_view kName = "token_loss";
  Communicator* group;  // null: all of the vocabulary is here
  HeadView head;
  float temperature;
  const int32_t* targets;
  const TokenRule& rule;
  float grad_scale;
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x) {
    const bool wants_grad = context.tape && grad_scale != 0, is_meta = x.device() == Device::meta;
    const DType wide = Context::wide(x.dtype());
    const VocabChunk chunk(context, head, group, x);
    const auto rows = size_t(x.rows());
    std::vector<double> logps(rows), dlogps(wants_grad ? rows : 0);
    // As much memory whatever the tokens: chunks have parts of these.
    const Tensor all_losses = context.empty(wide, {chunk.most_rows()}), all_lse = context.empty_like(all_losses),
                 all_factors = context.empty_like(all_losses);
    each_chunk(chunk, x.rows(), [&](int64_t begin, int64_t count) {
      const Tensor losses = all_losses.slice_rows(0, count);
      logits_of(context, chunk, x, begin, count);
      chunk.log_sums(context, targets + begin, losses, all_lse.slice_rows(0, count));
      if (!is_meta)
        read_wide(on_host(context.stream, losses), std::span(logps).subspan(size_t(begin), size_t(count)));
    });
    for (double& logp : logps) logp = -logp;
    const Tensor loss = context.empty(wide, {1});
    if (!is_meta)
      fill_on_host(context.stream, loss,
                   [&](const Tensor& host) { write_wide(host, std::array{rule(logps, dlogps)}); });
    if (!wants_grad) return loss;
    dx = context.empty_like(x);
    context.kernels.fill(context.stream, dx, 0);
    each_chunk(chunk, x.rows(), [&](int64_t begin, int64_t count) {
      const Tensor losses = all_losses.slice_rows(0, count), lse = all_lse.slice_rows(0, count),
                   factors = all_factors.slice_rows(0, count);
      if (!is_meta)
        fill_on_host(context.stream, factors, [&](const Tensor& host) {
          write_wide(host, std::span<const double>(dlogps).subspan(size_t(begin), size_t(count)));
        });
      Tensor capped;
      const Tensor logits = logits_of(context, chunk, x, begin, count, &capped);
      chunk.log_sums(context, targets + begin, losses, lse);
      context.kernels.cross_entropy_gradient(context.stream, logits, lse, factors, targets + begin,
                                             head.weight->placement.begin[0], -grad_scale / temperature);
      head_backward(context, head, capped, dx.slice_rows(begin, count), logits, x.slice_rows(begin, count));
    });
    return loss;
  }
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }

 private:
  Tensor logits_of(Context& context, const VocabChunk& chunk, const Tensor& x, int64_t begin, int64_t count,
                   Tensor* capped = nullptr) const {
    const Tensor logits = chunk.logits(context, x, begin, count, capped);
    if (temperature != 1) context.kernels.scale(context.stream, logits, logits, 1 / temperature);
    return logits;
  }
  // Runs of rows that have targets, piece by piece: prompts and padding have none.
  template <class Visit>
  void each_chunk(const VocabChunk& chunk, int64_t rows, Visit&& visit) const {
    for (int64_t begin = 0; begin < rows;) {
      int64_t end = begin;
      while (end < rows && end - begin < chunk.most_rows() && targets[end] >= 0) ++end;
      if (end > begin) visit(begin, end - begin);
      begin = std::max(end, begin + 1);
    }
  }
};

}  // namespace

Var token_loss(const TensorParallel& tensor, const HeadView& head, float temperature, const int32_t* targets,
               const TokenRule& rule, float grad_scale, const Var& hidden) {
  const Var x = tensor.enter(hidden);
  Communicator* const group = tensor.size() > 1 ? &tensor.group() : nullptr;
  return apply(*x.context, TokenLossOp{group, head, temperature, targets, rule, grad_scale}, x);
}

Var sequence_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets,
                  std::span<const SequencePart> parts, int64_t num_sequences, Communicator& spread,
                  const SequenceRule& rule, float grad_scale, const Var& hidden) {
  const TokenRule of_tokens = [&](std::span<const double> logps, std::span<double> dlogps) {
    Allocator memory;  // of the host
    const Tensor all = memory.empty(DType::f64, {num_sequences});
    const std::span sums(all.data<double>(), size_t(num_sequences));
    std::ranges::fill(sums, 0.0);
    for (const SequencePart& part : parts)
      for (const double logp : logps.subspan(size_t(part.begin), size_t(part.count)))
        sums[size_t(part.sequence)] += logp;
    spread.all_reduce(all);
    std::vector<double> slopes(dlogps.empty() ? 0 : sums.size(), 1);
    const double loss = rule(sums, slopes);
    for (const SequencePart& part : parts)
      if (!dlogps.empty())
        std::ranges::fill(dlogps.subspan(size_t(part.begin), size_t(part.count)), slopes[size_t(part.sequence)]);
    return spread.rank() == 0 ? loss : 0;
  };
  if (head.scores_texts) return score_loss(tensor, head, targets, of_tokens, grad_scale, hidden);
  return token_loss(tensor, head, 1, targets, of_tokens, grad_scale, hidden);
}

}  // namespace weft
