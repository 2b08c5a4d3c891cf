// TensorParallel: the conjugate collectives around a region.
#include "weft/parallel/tensor_parallel.h"

#include "weft/autograd/ops/own.h"
#include "weft/parallel/gradient_or_zeros.h"

namespace weft {
namespace {

// A collective of the backward pass, which other work hides until its gradient is asked for.
struct StartedBackward {
  Communicator& group;
  Shape shape = {};  // of what this rank has outside the region
  DType dtype = {};
  Tensor dx = {};
  Pending pending = {};

  Tensor finish_backward(Context&) {
    pending.wait();
    return std::move(dx);
  }
  Shape whole() const {
    Shape all = shape;
    all[0] *= group.size();
    return all;
  }
};

// Forward identity, backward all_reduce.
struct ReplicateOp : StartedBackward {
  static constexpr std::string_view kName = "tp_enter";

  Tensor forward(Context&, const Tensor& x) {
    shape = x.shape(), dtype = x.dtype();
    return x;
  }
  void start_backward(Context& context, const Tensor& dy) {
    dx = dy ? own(context, dy) : gradient_or_zeros(context, dy, dtype, shape);
    pending = group.start_all_reduce(dx);
  }
};

// Forward all_reduce, backward identity.
struct ReduceOp {
  static constexpr std::string_view kName = "tp_leave";
  Communicator& group;

  Tensor forward(Context& context, const Tensor& x) {
    Tensor y = own(context, x);
    group.all_reduce(y);
    return y;
  }
  Tensor backward(Context&, const Tensor& dy) { return dy; }
};

// Forward all_gather of tokens, backward reduce_scatter.
struct GatherOp : StartedBackward {
  static constexpr std::string_view kName = "sp_enter";

  Tensor forward(Context& context, const Tensor& x) {
    shape = x.shape(), dtype = x.dtype();
    Tensor y = context.empty(dtype, whole());
    group.all_gather(y, x);
    return y;
  }
  void start_backward(Context& context, const Tensor& dy) {
    dx = context.empty(dtype, shape);
    pending = group.start_reduce_scatter(dx, gradient_or_zeros(context, dy, dtype, whole()));
  }
};

// Forward reduce_scatter, backward all_gather.
struct ScatterOp : StartedBackward {
  static constexpr std::string_view kName = "sp_leave";

  Tensor forward(Context& context, const Tensor& x) {
    shape = x.shape(), dtype = x.dtype();
    shape[0] /= group.size();
    Tensor y = context.empty(dtype, shape);
    group.reduce_scatter(y, x);
    return y;
  }
  void start_backward(Context& context, const Tensor& dy) {
    dx = context.empty(dtype, whole());
    pending = group.start_all_gather(dx, gradient_or_zeros(context, dy, dtype, shape));
  }
};

}  // namespace

HeadCut cut_heads(int64_t heads, int64_t kv_heads, int rank, int size) {
  const int64_t group = heads / kv_heads;
  if (kv_heads >= size) {
    const Cut kv = even_cut(kv_heads, rank, size);
    return {.heads = {kv.begin * group, kv.count * group, heads}, .kv_heads = kv};
  }
  // Which key/value head's ranks is this one of?
  int64_t head = 0;
  Cut sharers = even_cut(size, 0, int(kv_heads));
  while (rank >= sharers.begin + sharers.count) sharers = even_cut(size, int(++head), int(kv_heads));
  const Cut mine = even_cut(group, rank - int(sharers.begin), int(sharers.count));
  return {.heads = {head * group + mine.begin, mine.count, heads},
          .kv_heads = {head, 1, kv_heads},
          .is_kv_shared = true,
          .is_first_holder = rank == sharers.begin};
}

Cut TensorParallel::tokens(int64_t num_tokens) const {
  if (!cuts_sequence_) return {0, num_tokens, num_tokens};
  if (num_tokens % size() != 0)
    throw UsageError(
        "{} tokens of a micro-batch do not divide by mesh.tp = {}: change train.micro_batch or seq_len, or "
        "write mesh.sequence_parallel = false",
        num_tokens, size());
  return cut(num_tokens);
}

Var TensorParallel::enter(const Var& x) const {
  if (!group_) return x;
  return cuts_sequence_ ? apply(*x.context, GatherOp{{*group_}}, x) : apply(*x.context, ReplicateOp{{*group_}}, x);
}

Var TensorParallel::leave(const Var& x) const {
  if (!group_) return x;
  return cuts_sequence_ ? apply(*x.context, ScatterOp{{*group_}}, x) : apply(*x.context, ReduceOp{*group_}, x);
}

}  // namespace weft
