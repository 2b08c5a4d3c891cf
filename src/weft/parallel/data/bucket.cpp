// Bucket: flat memory and the collectives on it.
#include "weft/parallel/data/bucket.h"

#include <algorithm>
#include <cmath>

#include "weft/parallel/data/near.h"
#include "weft/parallel/data/nf4_pieces.h"
#include "weft/parallel/data/wide_values.h"

namespace weft {
namespace {

// Elements: slices start on cache lines, and no block of 8-bit optimizer state lies on two ranks.
constexpr int64_t kAlignment = 256;
constexpr int64_t kNf4Alignment = 64 * nf4::kBlockBytes;  // bytes: no block of NF4 lies on two ranks either

int64_t aligned(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool any(const std::vector<Param*>& params, auto&& has) {
  for (const Param* p : params)
    if (has(*p)) return true;
  return false;
}

}  // namespace

Bucket::Bucket(Context& context, const BucketGroups& groups, Zero stage, DType dtype, std::vector<Param*> params,
               uint64_t seed, const FarHome& far)
    : context_(context), groups_(groups), stage_(stage), dtype_(dtype), far_(far), params_(std::move(params)) {
  const int64_t alignment = is_nf4() ? kNf4Alignment : kAlignment;
  // What decays lies together, and what does not: optimizers update each in one go.
  std::stable_partition(params_.begin(), params_.end(), [](const Param* p) { return p->decays(); });
  for (const Param* p : params_) {
    offsets_.push_back(size_);
    size_ += aligned(size_of(*p), alignment);
  }
  size_ = aligned(size_, alignment * groups_.shard.size());
  for (const Param* p : params_)
    check(p->trainable == params_.front()->trainable && p->is_nf4() == is_nf4() &&
              p->has_short_grad == params_.front()->has_short_grad,
          "{} is not kept together with {}", p->name, params_.front()->name);
  allocate();
  set_initial_values(seed);
  start_publish();
  publish();
}

void Bucket::set_initial_values(uint64_t seed) {
  const Owned mine = owned();
  const Near near(mine, Access::write);
  if (is_nf4()) {
    for (Param* p : params_) encode_initial(context_, mine, *p, seed);
    return;
  }
  for (const Piece& piece : mine.pieces)
    visit_wide(context_, mine, piece.offset, piece.count, false, true, [&](const Tensor& wide, int64_t at) {
      initialize(context_, *piece.param, seed, wide, piece.first + at - piece.offset);
    });
  if (mine.master && mine.values && !mine.is_split())
    context_.kernels.convert(context_.stream, mine.values, mine.master);
}

void Bucket::allocate() {
  const Kernels& k = context_.kernels;
  const DType wide = Context::wide(dtype_);
  const auto new_part = [&](DType dtype, FarParts* far) {
    if (far) return far->add(far_.part, dtype, {part()}).handle();
    const Tensor near = context_.empty(dtype, {part()});
    if (is_nf4()) return near;
    // Also what lies between the parameters. Halves of masters are filled as floats of 16 bits, whose zeros are
    // theirs.
    k.fill(context_.stream, dtype == DType::u16 ? near.view_bytes(0, DType::bf16, near.shape()) : near, 0);
    return near;
  };
  if (stage_ == Zero::parameters) {
    if (far_.values) far_values_ = &far_.values->add(far_.part, dtype_, {part()});
    const Tensor mine = far_values_ ? far_values_->handle() : new_part(dtype_, nullptr);
    (dtype_ == wide ? master_ : value_part_) = mine;
  } else {
    values_ = context_.empty(dtype_, {size_});
    if (!is_nf4()) k.fill(context_.stream, values_, 0);
    if (dtype_ == wide) master_ = part_of(values_);
  }
  if (is_frozen()) return;
  if (!master_) master_ = new_part(dtype_ == DType::bf16 ? DType::u16 : wide, far_.states);
  if (stage_ == Zero::none)
    grads_ = groups_.replicate.allocate_shared(context_.stream.allocator(), gradient_dtype(), {size_});
  else if (stage_ == Zero::optimizer)
    grads_ = groups_.shard.allocate_shared(context_.stream.allocator(), gradient_dtype(), {size_});
  else
    grad_part_ = context_.empty(gradient_dtype(), {part()});
  if (grads_) {
    k.fill(context_.stream, grads_, 0);
    assign_gradients();
  }
}

Tensor Owned::new_state(Context& context, DType dtype, Shape shape) const {
  if (far.states) return far.states->add(far.part, dtype, shape).handle();
  Tensor near = context.empty(dtype, shape);
  if (dtype != DType::u8) context.kernels.fill(context.stream, near, 0);
  return near;
}

Tensor Bucket::part_of(const Tensor& whole) const {
  return whole.slice_flat(part() * groups_.shard.rank(), {part()});
}

Tensor Bucket::owned_gradients() const { return stage_ <= Zero::optimizer ? part_of(grads_) : grad_part_; }

Owned Bucket::owned() {
  Owned o;
  o.master = master_;
  const bool is_own_value = dtype_ == Context::wide(dtype_);
  if (!is_own_value) o.values = stage_ == Zero::parameters ? value_part_ : part_of(values_);
  if (!is_frozen()) o.grads = owned_gradients();
  const bool is_first_end = groups_.tied.rank() == 0;
  o.is_counted = groups_.replicate.rank() == 0 &&
                 (is_first_end || !any(params_, [](const Param& p) { return p.placement.is_tied; }));
  o.params = params_, o.offsets = offsets_;
  o.shard = &groups_.shard, o.tensor = &groups_.tensor;
  o.far = far_;
  const int64_t begin = part() * groups_.shard.rank(), end = begin + part();
  for (size_t i = 0; i < params_.size(); ++i) {
    const int64_t from = std::max(begin, offsets_[i]), to = std::min(end, offsets_[i] + size_of(*params_[i]));
    if (from < to) o.pieces.push_back({params_[i], from - offsets_[i], from - begin, to - from});
  }
  return o;
}

void Bucket::assign_values() {
  for (size_t i = 0; i < params_.size(); ++i) {
    Param& p = *params_[i];
    p.value = values_.slice_flat(offsets_[i], p.is_nf4() ? Shape{size_of(p)} : p.shape);
    p.value_changed();
  }
}

void Bucket::assign_gradients() {
  for (size_t i = 0; i < params_.size(); ++i) {
    params_[i]->grad = grads_.slice_flat(offsets_[i], params_[i]->shape);
    params_[i]->clear_grad();
  }
}

// ---- values ----

void Bucket::fetch() {
  if (!far_values_ || values_ || !far_values_->is_away() || params_.empty()) return;
  far_values_->start_load(context_.empty(DType::u8, {int64_t(far_values_->bytes())}));
}

void Bucket::prefetch() {
  if (stage_ != Zero::parameters || values_ || params_.empty()) return;
  fetch();
  if (far_values_) far_values_->wait();
  values_ = context_.empty(dtype_, {size_});
  gather_ = groups_.shard.start_all_gather(values_, value_part_ ? value_part_ : master_);
}

void Bucket::open() {
  if (stage_ != Zero::parameters || params_.empty()) return;
  prefetch();
  if (value_users_++ > 0) return;
  gather_.wait();
  if (far_values_) far_values_->drop();
  assign_values();
}

void Bucket::close() {
  if (stage_ != Zero::parameters || params_.empty() || --value_users_ > 0) return;
  for (Param* p : params_) p->drop_value();
  values_ = {};
}

void Bucket::start_publish() {
  if (params_.empty() || stage_ == Zero::parameters) return;
  if (groups_.shard.size() > 1) gather_ = groups_.shard.start_all_gather(values_, part_of(values_));
}

void Bucket::publish() {
  if (params_.empty() || stage_ == Zero::parameters) return;
  gather_.wait();
  assign_values();
}

// ---- gradients ----

void Bucket::open_gradients() {
  if (stage_ <= Zero::optimizer || params_.empty() || is_frozen() || gradient_users_++ > 0) return;
  grads_ = context_.empty(gradient_dtype(), {size_});
  assign_gradients();
}

void Bucket::close_gradients(bool is_last) {
  if (params_.empty() || is_frozen()) return;
  if (stage_ <= Zero::optimizer) {
    if (is_last) start_finish();
    return;
  }
  if (--gradient_users_ > 0) return;
  complete_gradients();
  reduce();
  for (Param* p : params_) p->grad = {}, p->clear_grad();
  grads_ = {};
}

void Bucket::settle_gradients() {
  if (stage_ > Zero::optimizer && !is_reduced_) wait_reduced();
}

// Zeros where nothing was written, and the sum over the tensor group where that is the gradient.
void Bucket::complete_gradients() {
  for (size_t i = 0; i < params_.size(); ++i) {
    Param& p = *params_[i];
    if (!p.accumulate_next()) context_.kernels.fill(context_.stream, p.grad, 0);
    if (is_watching_ && !not_finite_ && !std::isfinite(context_.kernels.sum_of_squares(context_.stream, {&p.grad, 1})))
      not_finite_ = &p;
    if (stage_ <= Zero::optimizer) continue;  // there the gaps were filled once
    const int64_t end = offsets_[i] + p.shape.numel(), next = i + 1 < params_.size() ? offsets_[i + 1] : size_;
    if (end < next) context_.kernels.fill(context_.stream, grads_.slice_flat(end, {next - end}), 0);
  }
  sum_partial();
}

void Bucket::sum_partial() {
  if (groups_.tensor.size() == 1) return;
  int64_t size = 0;
  for (const Param* p : params_)
    if (p->placement.is_partial) size += p->placement.whole.numel();
  if (size == 0) return;
  const Kernels& k = context_.kernels;
  const Tensor all = context_.empty(gradient_dtype(), {size});
  k.fill(context_.stream, all, 0);
  const auto each_run = [&](auto&& copy) {
    int64_t base = 0;
    for (Param* p : params_) {
      if (!p->placement.is_partial) continue;
      p->placement.each_run(0, p->shape.numel(), [&](int64_t local, int64_t global, int64_t n) {
        copy(p->grad.slice_flat(local, {n}), all.slice_flat(base + global, {n}));
      });
      base += p->placement.whole.numel();
    }
  };
  each_run([&](const Tensor& mine, const Tensor& slot) { k.convert(context_.stream, slot, mine); });
  groups_.tensor.all_reduce(all);
  each_run([&](const Tensor& mine, const Tensor& slot) { k.convert(context_.stream, mine, slot); });
}

// One micro-batch's gradients, summed over the shard group into this rank's part.
void Bucket::reduce() {
  wait_reduced();
  if (!has_sum_) {
    has_sum_ = true;
    reduction_ = groups_.shard.start_reduce_scatter(grad_part_, grads_);
    return;
  }
  arriving_ = context_.empty_like(grad_part_);
  reduction_ = groups_.shard.start_reduce_scatter(arriving_, grads_);
}

void Bucket::wait_reduced() {
  reduction_.wait();
  if (!arriving_) return;
  context_.kernels.add(context_.stream, grad_part_, grad_part_, arriving_);
  arriving_ = {};
}

void Bucket::start_finish() {
  if (params_.empty() || is_frozen() || is_reduced_) return;
  is_reduced_ = true;
  if (stage_ > Zero::optimizer) {
    wait_reduced();
    if (!has_sum_) context_.kernels.fill(context_.stream, grad_part_, 0);
    reduction_ = groups_.replicate.start_all_reduce(grad_part_);
    return;
  }
  complete_gradients();
  reduction_ = stage_ == Zero::none ? groups_.replicate.start_all_reduce(grads_)
                                    : groups_.shard.start_reduce_scatter(part_of(grads_), grads_);
}

void Bucket::finish() {
  if (params_.empty() || is_frozen()) return;
  start_finish();
  reduction_.wait();
  const Tensor mine = owned_gradients();
  if (stage_ == Zero::optimizer && groups_.replicate.size() > 1) groups_.replicate.all_reduce(mine);
  if (groups_.tied.size() > 1 && any(params_, [](const Param& p) { return p.placement.is_tied; }))
    groups_.tied.all_reduce(mine);
  is_reduced_ = has_sum_ = false;
  for (Param* p : params_) p->clear_grad();
}

}  // namespace weft
