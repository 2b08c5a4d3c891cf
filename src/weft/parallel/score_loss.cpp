// score_loss: labels are few, so that the scores of all rows are made at once.
#include "weft/parallel/score_loss.h"

#include <algorithm>
#include <array>
#include <vector>

#include "weft/tensor/host_access.h"
#include "weft/tensor/wide_values.h"

namespace weft {
namespace {

std::vector<double> values_of(Context& context, const Tensor& x) {
  std::vector<double> all(size_t(x.numel()));
  read_wide(on_host(context.stream, x), all);
  return all;
}

struct ScoreLossOp {
  static constexpr std::string_view kName = "score_loss";
  HeadView head;
  const int32_t* targets;
  const TokenRule& rule;
  float grad_scale;
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x) {
    const bool wants_grad = context.tape && grad_scale != 0;
    const Tensor scores = text_scores(context, head, x), loss = context.empty(scores.dtype(), {1});
    const auto rows = size_t(x.rows());
    std::vector<double> slopes(wants_grad ? rows : 0);
    if (x.device() != Device::meta) {
      const std::vector<double> all = values_of(context, scores);
      std::vector<double> values(rows);
      each_target(rows, scores.dim(1), [&](size_t row, size_t at) { values[row] = all[at]; });
      fill_on_host(context.stream, loss,
                   [&](const Tensor& host) { write_wide(host, std::array{rule(values, slopes)}); });
    }
    if (wants_grad) differentiate(context, x, scores, slopes);
    return loss;
  }
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }

 private:
  // Calls visit(row, its target's place among the scores of all rows).
  template <class Visit>
  void each_target(size_t rows, int64_t labels, Visit&& visit) const {
    for (size_t t = 0; t < rows; ++t)
      if (targets[t] >= 0) visit(t, t * size_t(labels) + size_t(targets[t]));
  }
  // scores become their gradient.
  void differentiate(Context& context, const Tensor& x, const Tensor& scores, const std::vector<double>& slopes) {
    if (x.device() != Device::meta) {
      std::vector<double> gradient(size_t(scores.numel()));
      each_target(slopes.size(), scores.dim(1),
                  [&](size_t row, size_t at) { gradient[at] = slopes[row] * double(grad_scale); });
      fill_on_host(context.stream, scores, [&](const Tensor& host) { write_wide(host, gradient); });
    }
    Tensor dscores = scores;
    if (scores.dtype() != x.dtype()) {
      dscores = context.empty(x.dtype(), scores.shape());
      context.kernels.convert(context.stream, dscores, scores);
    }
    dx = context.empty_like(x);
    head_backward(context, head, {}, dx, dscores, x);
  }
};

void count_right(Context& context, const HeadView& head, const int32_t* targets, const Tensor& x,
                 RightTargets& counted) {
  const Tensor scores = text_scores(context, head, x);
  if (scores.device() == Device::meta) return;
  const std::vector<double> all = values_of(context, scores);
  const auto labels = std::ptrdiff_t(scores.dim(1));
  for (int64_t t = 0; t < x.rows(); ++t) {
    if (targets[t] < 0) continue;
    const auto row = all.begin() + t * labels;
    ++counted.all, counted.right += std::max_element(row, row + labels) - row == targets[t];
  }
}

}  // namespace

Var measured_classes(const TensorParallel& tensor, const HeadView& head, const int32_t* targets, const Var& hidden,
                     RightTargets& counted) {
  const Var x = tensor.enter(hidden);
  check_labels(head, targets, x.value.rows());
  count_right(*x.context, head, targets, x.value, counted);
  return apply(*x.context, HeadLossOp{head, targets, 0}, x);
}

void check_labels(const HeadView& head, const int32_t* targets, int64_t rows) {
  const int64_t labels = head.weight->shape[0];
  for (int64_t t = 0; t < rows; ++t)
    if (targets[t] >= labels)
      throw Error("the data has label {}, and the model {} labels, from 0 on: raise model.labels, or give other data",
                  targets[t], labels);
}

Var score_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets, const TokenRule& rule,
               float grad_scale, const Var& hidden) {
  const Var x = tensor.enter(hidden);
  check_labels(head, targets, x.value.rows());
  return apply(*x.context, ScoreLossOp{head, targets, rule, tensor.rank() == 0 ? grad_scale : 0}, x);
}

}  // namespace weft
