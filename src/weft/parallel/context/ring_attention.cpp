// Ring attention: the turn of the blocks.
#include "weft/parallel/context/ring_attention.h"

#include <cmath>

#include "weft/parallel/gradient_or_zeros.h"

namespace weft {
namespace {

// One pair of tensors that goes around. Sending is buffered, so the pair may be received into again at once.
class Turn {
 public:
  Turn(Communicator& group, int first_tag) : group_(group), tag_(first_tag) {}
  void send(const std::array<Tensor, 2>& pair) const {
    const int next = (group_.rank() + 1) % group_.size();
    for (int i = 0; i < 2; ++i) group_.send(pair[size_t(i)], next, tag_ + i);
  }
  void receive(const std::array<Tensor, 2>& pair) const {
    const int previous = (group_.rank() + group_.size() - 1) % group_.size();
    for (int i = 0; i < 2; ++i) group_.recv(pair[size_t(i)], previous, tag_ + i);
  }

 private:
  Communicator& group_;
  int tag_;
};

constexpr int kKeysTag = 7100, kGradientsTag = 7102;

// Calls body(step, keys and values that visit) for every step; the next block is on its way meanwhile.
template <class Body>
void for_each_step(Context& context, Communicator& group, const Tensor& k, const Tensor& v, Body&& body) {
  const Turn turn(group, kKeysTag);
  std::array<Tensor, 2> visiting{k, v};
  for (int step = 0; step < group.size(); ++step) {
    const bool is_last = step + 1 == group.size();
    if (!is_last) turn.send(visiting);
    body(step, visiting);
    if (is_last) return;
    if (step == 0) visiting = {context.empty_like(k), context.empty_like(v)};
    turn.receive(visiting);
  }
}

}  // namespace

Tensor RingAttentionOp::forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in) {
  q = q_in, k = k_in, v = v_in;
  const Kernels& kernels = context.kernels;
  const DType wide = Context::wide(q.dtype());
  const Shape out{q.dim(0), q.dim(1), v.dim(2)};
  const Tensor sum = context.empty(wide, out), part = context.empty(q.dtype(), out);
  lse = context.empty(wide, {q.dim(1), q.dim(0)});
  const Tensor part_lse = context.empty_like(lse);
  kernels.fill(context.stream, sum, 0);
  kernels.fill(context.stream, lse, -HUGE_VALF);
  for_each_step(context, call.parallel.group, k, v, [&](int step, const std::array<Tensor, 2>& visiting) {
    for (int i = 0; i < ContextPlan::kMaxParts; ++i) {
      const AttentionShape shape = call.rule.shape(context, q, k, v, call.plan.ring(step, i));
      if (shape.num_spans == 0) continue;
      kernels.attention(context.stream, {.y = part,
                                         .lse = part_lse,
                                         .q = q,
                                         .k = visiting[0],
                                         .v = visiting[1],
                                         .shape = shape,
                                         .dropout = call.dropout});
      kernels.attention_merge(context.stream, sum, lse, part, part_lse);
    }
  });
  y = wide == q.dtype() ? sum : part;
  if (wide != q.dtype()) kernels.convert(context.stream, y, sum);
  call.sinks.join(context, y, lse);
  return y;
}

std::array<Tensor, 3> RingAttentionOp::backward(Context& context, const Tensor& dy_in) {
  const Kernels& kernels = context.kernels;
  const Tensor dy = gradient_or_zeros(context, dy_in, y);
  call.sinks.add_gradient(context, dy, y, lse);
  const DType wide = Context::wide(q.dtype());
  const Turn turn(call.parallel.group, kGradientsTag);
  const Tensor dq = context.empty(wide, q.shape());
  const std::array<Tensor, 2> dkv{context.empty(wide, k.shape()), context.empty(wide, v.shape())};
  const std::array<Tensor, 3> part{context.empty_like(q), context.empty_like(k), context.empty_like(v)};
  kernels.fill(context.stream, dq, 0);
  for (const Tensor& d : dkv) kernels.fill(context.stream, d, 0);
  for_each_step(context, call.parallel.group, k, v, [&](int step, const std::array<Tensor, 2>& visiting) {
    bool is_here = step == 0;  // what other ranks have summed for these keys
    for (int i = 0; i < ContextPlan::kMaxParts; ++i) {
      const AttentionShape shape = call.rule.shape(context, q, k, v, call.plan.ring(step, i));
      if (shape.num_spans == 0) continue;
      kernels.attention_backward(context.stream, {.dq = part[0],
                                                  .dk = part[1],
                                                  .dv = part[2],
                                                  .dy = dy,
                                                  .y = y,
                                                  .lse = lse,
                                                  .q = q,
                                                  .k = visiting[0],
                                                  .v = visiting[1],
                                                  .shape = shape,
                                                  .dropout = call.dropout});
      if (!std::exchange(is_here, true)) turn.receive(dkv);
      kernels.accumulate(context.stream, dq, part[0]);
      for (size_t j = 0; j < 2; ++j) kernels.accumulate(context.stream, dkv[j], part[j + 1]);
    }
    if (!is_here) turn.receive(dkv);
    if (call.parallel.group.size() > 1) turn.send(dkv);
  });
  if (call.parallel.group.size() > 1) turn.receive(dkv);
  if (wide == q.dtype()) return {dq, dkv[0], dkv[1]};
  kernels.convert(context.stream, part[0], dq);
  for (size_t j = 0; j < 2; ++j) kernels.convert(context.stream, part[j + 1], dkv[j]);
  return part;
}

}  // namespace weft
