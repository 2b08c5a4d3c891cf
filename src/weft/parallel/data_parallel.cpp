// DataParallel: buckets of gradients and when they are sent.
#include "weft/parallel/data_parallel.h"

namespace weft {
namespace {

constexpr int64_t kAlignment = 16;  // elements: slices start on cache lines

int64_t aligned(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DataParallel::DataParallel(Context& context, Communicator& ranks, const std::vector<std::vector<Param*>>& groups)
    : context_(context), ranks_(ranks), buckets_(groups.size()) {
  for (size_t g = 0; g < groups.size(); ++g) {
    Bucket& bucket = buckets_[g];
    int64_t size = 0;
    for (Param* p : groups[g])
      if (p->trainable) bucket.params.push_back(p), size += aligned(p->shape.numel());
    if (bucket.params.empty()) continue;
    const DType dtype = Context::wide(bucket.params[0]->value.dtype());
    bucket.grads = ranks.allocate_shared(context.stream.allocator(), dtype, {size});
    context.kernels.fill(context.stream, bucket.grads, 0);  // also what lies between the slices
    int64_t offset = 0;
    for (Param* p : bucket.params) {
      p->grad = bucket.grads.slice_flat(offset, p->shape);
      p->clear_grad();
      offset += aligned(p->shape.numel());
    }
  }
}

// Its backward runs when the group's own backward is over.
struct DataParallel::EnterOp {
  static constexpr std::string_view kName = "reduce_gradients";
  static constexpr bool kAlwaysBackward = true;
  DataParallel& owner;
  size_t group;

  Tensor forward(Context&, const Tensor& x) { return x; }
  Tensor backward(Context& context, const Tensor& dy) {
    const bool is_complete = context.tape->when() == WeightGrads::now;
    if (owner.is_last_ && is_complete) owner.start(owner.buckets_[group]);
    return dy;
  }
};

Var DataParallel::enter(size_t group, const Var& x) { return apply(*x.context, EnterOp{*this, group}, x); }

void DataParallel::start(Bucket& bucket) {
  if (bucket.is_started || bucket.params.empty()) return;
  bucket.is_started = true;
  for (Param* p : bucket.params)
    if (!p->accumulate_next()) context_.kernels.fill(context_.stream, p->grad, 0);
  bucket.sum = ranks_.start_all_reduce(bucket.grads);
}

void DataParallel::finish() {
  for (size_t g = buckets_.size(); g-- > 0;) start(buckets_[g]);
  for (size_t g = buckets_.size(); g-- > 0;) {
    buckets_[g].sum.wait();
    buckets_[g].is_started = false;
  }
}

}  // namespace weft
