// score_loss: labels are few, so that the scores of all rows are made at once.
#include "weft/parallel/score_loss.h"

#include <algorithm>
#include <vector>

#include "weft/tensor/host_access.h"

namespace weft {
namespace {

template <class Visit>
void visit_elements(const Tensor& x, Visit&& visit) {
  if (x.dtype() == DType::f64)
    visit(x.data<double>());
  else
    visit(x.data<float>());
}

struct ScoreLossOp {
  static constexpr std::string_view kName = "score_loss";
  HeadView head;
  const int32_t* targets;
  const TokenRule& rule;
  float grad_scale;
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x) {
    const bool wants_grad = context.tape && grad_scale != 0, is_meta = x.device() == Device::meta;
    const auto rows = size_t(x.rows()), labels = size_t(head.weight->shape[0]);
    const Tensor scores = context.empty(Context::wide(x.dtype()), {x.rows(), int64_t(labels)});
    head_logits(context, head, scores, x, false);
    std::vector<double> values(rows), slopes(wants_grad ? rows : 0);
    if (!is_meta)
      visit_elements(on_host(context.stream, scores), [&](const auto* all) {
        for (size_t t = 0; t < rows; ++t)
          if (targets[t] >= 0) values[t] = double(all[t * labels + size_t(targets[t])]);
      });
    const Tensor loss = context.empty(scores.dtype(), {1});
    if (!is_meta)
      fill_on_host(context.stream, loss, [&](const Tensor& host) {
        visit_elements(host, [&](auto* y) { y[0] = std::remove_reference_t<decltype(*y)>(rule(values, slopes)); });
      });
    if (wants_grad) differentiate(context, x, scores, slopes);
    return loss;
  }
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }

 private:
  void differentiate(Context& context, const Tensor& x, const Tensor& scores, const std::vector<double>& slopes) {
    const auto labels = size_t(scores.dim(1));
    if (x.device() != Device::meta)
      fill_on_host(context.stream, scores, [&](const Tensor& host) {
        visit_elements(host, [&](auto* d) {
          using T = std::remove_reference_t<decltype(*d)>;
          std::fill_n(d, size_t(host.numel()), T(0));
          for (size_t t = 0; t < slopes.size(); ++t)
            if (targets[t] >= 0) d[t * labels + size_t(targets[t])] = T(slopes[t] * double(grad_scale));
        });
      });
    Tensor dscores = scores;
    if (scores.dtype() != x.dtype()) {
      dscores = context.empty(x.dtype(), scores.shape());
      context.kernels.convert(context.stream, dscores, scores);
    }
    dx = context.empty_like(x);
    head_backward(context, head, {}, dx, dscores, x);
  }
};

}  // namespace

RightTargets count_right(const TensorParallel& tensor, const HeadView& head, const int32_t* targets,
                         const Var& hidden) {
  const Var x = tensor.enter(hidden);
  Context& context = *x.context;
  const auto rows = size_t(x.value.rows()), labels = size_t(head.weight->shape[0]);
  const Tensor scores = context.empty(Context::wide(x.value.dtype()), {int64_t(rows), int64_t(labels)});
  head_logits(context, head, scores, x.value, false);
  RightTargets found;
  if (scores.device() == Device::meta) return found;
  visit_elements(on_host(context.stream, scores), [&](const auto* all) {
    for (size_t t = 0; t < rows; ++t) {
      if (targets[t] < 0) continue;
      const auto* const row = all + t * labels;
      ++found.all, found.right += std::max_element(row, row + labels) - row == targets[t];
    }
  });
  return found;
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
