// distill_loss: both models' logits, chunk by chunk.
#include "weft/parallel/distill_loss.h"

#include <algorithm>
#include <vector>

#include "weft/parallel/vocab_chunk.h"
#include "weft/tensor/host_access.h"

namespace weft {
namespace {

struct DistillLossOp {
  static constexpr std::string_view kName = "distill_loss";
  Communicator* group;  // null: all of the vocabulary is here
  HeadView head;
  const int32_t* targets;
  TeacherView teacher;
  DistillMix mix;
  float grad_scale;
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x) {
    const bool wants_grad = context.tape && grad_scale != 0;
    const DType wide = Context::wide(x.dtype());
    const VocabChunk student(context, head, group, x);
    const VocabChunk taught(context, teacher.head, group, teacher.hidden);
    const Tensor losses = context.empty(wide, {x.rows(), 1});
    if (wants_grad) dx = context.empty_like(x);
    const int64_t most = std::min(student.most_rows(), taught.most_rows());
    for (int64_t begin = 0; begin < x.rows(); begin += most)
      run_chunk(context, x, begin, std::min(most, x.rows() - begin), student, taught, losses, wants_grad);
    Tensor loss = context.empty(wide, {1});
    context.kernels.sum_rows(context.stream, loss, losses, false);
    return loss;
  }
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }

 private:
  // Logits become probabilities times `factor`; rows without a target become zeros. No column is anybody's target,
  // since columns are counted from behind the vocabulary.
  void to_probabilities(Context& context, const Tensor& logits, const Tensor& lse, int64_t begin, float factor) {
    context.kernels.cross_entropy_gradient(context.stream, logits, lse, {}, targets + begin,
                                           head.weight->placement.whole[0], factor);
  }
  static Tensor copy_of(Context& context, const Tensor& x) {
    Tensor copy = context.empty_like(x);
    context.kernels.convert(context.stream, copy, x);
    return copy;
  }

  void run_chunk(Context& context, const Tensor& x, int64_t begin, int64_t rows, const VocabChunk& student,
                 const VocabChunk& taught, const Tensor& all_losses, bool wants_grad) {
    const Kernels& k = context.kernels;
    const DType wide = all_losses.dtype();
    const float t = mix.temperature;
    const Tensor losses = all_losses.slice_rows(begin, rows).reshape({rows}), unused = context.empty(wide, {rows});
    const Tensor lse = context.empty(wide, {rows}), student_lse = context.empty(wide, {rows}),
                 teacher_lse = context.empty(wide, {rows});
    Tensor capped;
    const Tensor s = student.logits(context, x, begin, rows, wants_grad ? &capped : nullptr);
    student.log_sums(context, targets + begin, losses, lse);
    Tensor gradient;
    if (wants_grad) {
      gradient = copy_of(context, s);
      k.cross_entropy_gradient(context.stream, gradient, lse, {}, targets + begin, head.weight->placement.begin[0],
                               (1 - mix.alpha) * grad_scale);
    }
    // From here on at the temperature.
    k.scale(context.stream, s, s, 1 / t);
    student.log_sums(context, targets + begin, unused, student_lse);
    const Tensor teacher_logits = taught.logits(context, teacher.hidden, begin, rows);
    k.scale(context.stream, teacher_logits, teacher_logits, 1 / t);
    taught.log_sums(context, targets + begin, unused, teacher_lse);
    const Tensor p = copy_of(context, teacher_logits);
    to_probabilities(context, p, teacher_lse, begin, 1);
    const Tensor dots = context.empty(wide, {2, rows});  // p . teacher's logits, p . student's
    k.dot_rows(context.stream, dots.slice_rows(0, 1).reshape({rows}), p, teacher_logits);
    k.dot_rows(context.stream, dots.slice_rows(1, 1).reshape({rows}), p, s);
    if (group) group->all_reduce(dots);
    if (losses.device() != Device::meta)
      change_on_host(context.stream, losses, [&](const Tensor& host) {
        const auto read = [&](const Tensor& from) { return on_host(context.stream, from); };
        if (wide == DType::f64)
          add_divergence<double>(begin, host, read(dots), read(teacher_lse), read(student_lse));
        else
          add_divergence<float>(begin, host, read(dots), read(teacher_lse), read(student_lse));
      });
    if (!wants_grad) return;
    const float factor = mix.alpha * t * grad_scale;
    to_probabilities(context, s, student_lse, begin, factor);
    k.add(context.stream, gradient, gradient, s);
    k.scale(context.stream, p, p, -factor);
    k.add(context.stream, gradient, gradient, p);
    head_backward(context, head, capped, dx.slice_rows(begin, rows), gradient, x.slice_rows(begin, rows));
  }

  template <class T>
  void add_divergence(int64_t begin, const Tensor& losses, const Tensor& dots, const Tensor& teacher_lse,
                      const Tensor& student_lse) const {
    const int64_t rows = losses.numel();
    const double square = double(mix.temperature) * double(mix.temperature);
    for (int64_t i = 0; i < rows; ++i) {
      if (targets[begin + i] < 0) continue;
      const double kl = double(dots.data<T>()[i]) - double(dots.data<T>()[rows + i]) -
                        double(teacher_lse.data<T>()[i]) + double(student_lse.data<T>()[i]);
      T& loss = losses.data<T>()[i];
      loss = T((1 - double(mix.alpha)) * double(loss) + double(mix.alpha) * square * kl);
    }
  }
};

}  // namespace

Var distill_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets,
                 const TeacherView& teacher, const DistillMix& mix, float grad_scale, const Var& hidden) {
  const Var x = tensor.enter(hidden);
  Communicator* const group = tensor.size() > 1 ? &tensor.group() : nullptr;
  return apply(*x.context, DistillLossOp{group, head, targets, teacher, mix, grad_scale}, x);
}

}  // namespace weft
