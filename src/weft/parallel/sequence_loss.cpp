// sequence_loss: chunks of sequences, first for their log-probabilities, then for gradients.
#include "weft/parallel/sequence_loss.h"

#include <algorithm>
#include <vector>

#include "weft/autograd/ops/head_loss.h"
#include "weft/parallel/vocab_chunk.h"
#include "weft/tensor/host_access.h"

namespace weft {
namespace {

struct SequenceLossOp {
  static constexpr std::string_view kName = "sequence_loss";
  Communicator* group;  // null: all of the vocabulary is here
  Param& weight;
  float softcap;
  const int32_t* targets;
  std::span<const int32_t> starts;
  const SequenceRule& rule;
  float grad_scale;
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x) {
    const bool wants_grad = context.tape && grad_scale != 0;
    const VocabChunk chunk(context, weight, softcap, group, x);
    const size_t sequences = starts.size() - 1;
    std::vector<double> logps(sequences), dlogps(wants_grad ? sequences : 0, 1);
    each_chunk(chunk, [&](size_t sequence, int64_t begin, int64_t rows) {
      const Tensor losses = context.empty(Context::wide(x.dtype()), {rows});
      chunk.logits(context, x, begin, rows);
      chunk.log_sums(context, rows, targets + begin, losses);
      logps[sequence] -= sum(on_host(context.stream, losses));
    });
    const Tensor loss = context.empty(Context::wide(x.dtype()), {1});
    if (x.device() != Device::meta)
      fill_on_host(context.stream, loss, [&](const Tensor& host) { store(host, rule(logps, dlogps)); });
    if (!wants_grad) return loss;
    dx = context.empty_like(x);
    context.kernels.fill(context.stream, dx, 0);
    each_chunk(chunk, [&](size_t sequence, int64_t begin, int64_t rows) {
      Tensor capped;
      const Tensor logits = chunk.logits(context, x, begin, rows, &capped);
      const Tensor losses = context.empty(Context::wide(x.dtype()), {rows});
      const Tensor lse = chunk.log_sums(context, rows, targets + begin, losses);
      context.kernels.cross_entropy_gradient(context.stream, logits, lse, targets + begin, weight.placement.begin[0],
                                             float(-dlogps[sequence]) * grad_scale);
      head_backward(context, weight, softcap, capped, dx.slice_rows(begin, rows), logits, x.slice_rows(begin, rows));
    });
    return loss;
  }
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }

 private:
  template <class Visit>
  void each_chunk(const VocabChunk& chunk, Visit&& visit) const {
    for (size_t s = 0; s + 1 < starts.size(); ++s)
      for (int64_t begin = starts[s]; begin < starts[s + 1]; begin += chunk.most_rows())
        visit(s, begin, std::min<int64_t>(chunk.most_rows(), starts[s + 1] - begin));
  }
  static double sum(const Tensor& x) {
    double all = 0;
    if (x.device() == Device::meta) return all;
    for (int64_t i = 0; i < x.numel(); ++i)
      all += x.dtype() == DType::f64 ? x.data<double>()[i] : double(x.data<float>()[i]);
    return all;
  }
  static void store(const Tensor& x, double value) {
    if (x.dtype() == DType::f64)
      *x.data<double>() = value;
    else
      *x.data<float>() = float(value);
  }
};

}  // namespace

Var sequence_loss(const TensorParallel& tensor, Param& weight, float softcap, const int32_t* targets,
                  std::span<const int32_t> starts, const SequenceRule& rule, float grad_scale, const Var& hidden) {
  const Var x = tensor.enter(hidden);
  Communicator* const group = tensor.size() > 1 ? &tensor.group() : nullptr;
  return apply(*x.context, SequenceLossOp{group, weight, softcap, targets, starts, rule, grad_scale}, x);
}

}  // namespace weft
