// DataParallel: which buckets there are, and what the brackets do with them.
#include "weft/parallel/data/data_parallel.h"

namespace weft {

DataParallel::DataParallel(Context& context, const Mesh& mesh, const DataParallelOptions& options,
                           const std::vector<std::vector<Param*>>& groups, int shared, DType dtype, uint64_t seed)
    : context_(context), options_(options), groups_(groups.size()), shared_(shared) {
  const bool is_sharded = options_.zero != Zero::none;
  if (options_.far_states) far_states_.emplace(*options_.far_states, context_.stream.allocator());
  if (options_.far_values) far_values_.emplace(*options_.far_values, context_.stream.allocator());
  const auto new_home = [&] {
    FarHome home;
    if (far_states_) home.states = &*far_states_, home.part = far_states_->add_part();
    if (far_values_) home.values = &*far_values_, home.part = far_values_->add_part();
    return home;
  };
  // Those who hold a group of one stand for "nobody else".
  const auto groups_of = [&](bool is_expert, bool is_tied) -> BucketGroups {
    Communicator& none = mesh.none();
    Communicator& all = is_expert ? mesh.expert_data() : mesh.data();
    Communicator& shard = is_expert ? mesh.expert_shard() : mesh.shard();
    return {is_sharded ? shard : none, is_sharded ? mesh.replicate() : all, mesh.tp(), is_tied ? mesh.ends() : none};
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    constexpr int kKinds = 3;               // dense, expert, tied
    std::vector<Param*> kinds[4 * kKinds];  // trained, with gradients of 16 bits, frozen, frozen as NF4
    for (Param* p : groups[g]) {
      const int kind = p->placement.is_expert ? 1 : p->placement.is_tied ? 2 : 0;
      const int life = p->trainable ? (p->has_short_grad ? 1 : 0) : (p->is_nf4() ? 3 : 2);
      kinds[life * kKinds + kind].push_back(p);
    }
    for (int kind = 0; kind < 4 * kKinds; ++kind)
      if (!kinds[kind].empty())
        groups_[g].buckets.push_back(std::make_unique<Bucket>(
            context_, groups_of(kind % kKinds == 1, kind % kKinds == 2), options_.zero,
            kind < 3 * kKinds ? dtype : DType::u8, std::move(kinds[kind]), seed, new_home()));
  }
}

void DataParallel::open(size_t group) {
  for (const auto& b : groups_[group].buckets) b->open();
}
void DataParallel::close(size_t group) {
  for (const auto& b : groups_[group].buckets) b->close();
}
void DataParallel::open_gradients(size_t group) {
  for (const auto& b : groups_[group].buckets) b->open_gradients();
}
void DataParallel::close_gradients(size_t group) {
  const bool is_last = ++groups_[group].micro_batches_done == num_micro_batches_;
  for (const auto& b : groups_[group].buckets) b->close_gradients(is_last);
  // Gradients on their way are whole: those of two groups at a time.
  if (group + 2 < groups_.size())
    for (const auto& b : groups_[group + 2].buckets) b->settle_gradients();
}
void DataParallel::fetch(size_t group) {
  for (const auto& b : groups_[group].buckets) b->fetch();
}
void DataParallel::prefetch(size_t group) {
  for (const auto& b : groups_[group].buckets) b->prefetch();
}

struct DataParallel::EnterOp {
  static constexpr std::string_view kName = "data_enter";
  static constexpr bool kAlwaysBackward = true;
  DataParallel& owner;
  size_t group;
  bool is_result;  // the loss is made in it: it is not left before the backward pass
  int num_next;    // groups that will be entered after this one

  Tensor forward(Context& context, const Tensor& x) {
    owner.open(group);
    if (is_result && context.tape) owner.open_gradients(group);  // a loss makes gradients in its forward pass
    if (num_next > 0) owner.prefetch(group + 1);
    if (num_next > 1) owner.fetch(group + 2);
    return x;
  }
  Tensor backward(Context&, const Tensor& dy) {
    owner.close(group);
    return dy;
  }
  void backward_weight(Context&, const Tensor&) { owner.close_gradients(group); }
};

struct DataParallel::LeaveOp {
  static constexpr std::string_view kName = "data_leave";
  static constexpr bool kAlwaysBackward = true;
  DataParallel& owner;
  size_t group;
  int num_previous;  // groups whose backward comes after this one's

  Tensor forward(Context&, const Tensor& x) {
    if (owner.options_.reshard_after_forward) owner.close(group);
    return x;
  }
  Tensor backward(Context&, const Tensor& dy) {
    if (owner.options_.reshard_after_forward) owner.open(group);
    owner.open_gradients(group);
    if (!owner.options_.reshard_after_forward) return dy;
    if (num_previous > 0) owner.prefetch(group - 1);
    if (num_previous > 1) owner.fetch(group - 2);
    return dy;
  }
};

class DataParallel::Part final : public Brackets {
 public:
  Part(DataParallel& owner, size_t first, size_t count, bool ends_in_loss)
      : owner_(owner), first_(first), count_(count), ends_in_loss_(ends_in_loss) {}

  Var enter(size_t group, const Var& x) override {
    const int num_next = group + 1 < count_ && !is_shared(group + 1) ? 1 + (group + 2 < count_) : 0;
    return apply(*x.context, EnterOp{owner_, first_ + group, is_result(group), num_next}, x);
  }
  Var leave(size_t group, const Var& x) override {
    if (!x.context->tape) {
      owner_.close(first_ + group);
      return x;
    }
    if (is_result(group)) return x;
    const int num_previous = group > 0 && !is_shared(group - 1) ? 1 + (group > 1 && !is_shared(group - 2)) : 0;
    return apply(*x.context, LeaveOp{owner_, first_ + group, num_previous}, x);
  }

 private:
  bool is_shared(size_t group) const { return int(first_ + group) == owner_.shared_; }
  bool is_result(size_t group) const { return ends_in_loss_ && group + 1 == count_; }

  DataParallel& owner_;
  size_t first_, count_;
  bool ends_in_loss_;
};

std::unique_ptr<Brackets> DataParallel::part(size_t first, size_t count, bool ends_in_loss) {
  return std::make_unique<Part>(*this, first, count, ends_in_loss);
}

void DataParallel::begin(int num_micro_batches) {
  num_micro_batches_ = num_micro_batches;
  for (Group& g : groups_) g.micro_batches_done = 0;
  if (shared_ < 0) return;
  open(size_t(shared_));
  if (num_micro_batches > 0) open_gradients(size_t(shared_));
}

void DataParallel::finish() {
  if (shared_ >= 0) {
    close(size_t(shared_));
    for (const auto& b : groups_[size_t(shared_)].buckets) b->close_gradients(true);
  }
  for (size_t g = groups_.size(); g-- > 0;)
    for (const auto& b : groups_[g].buckets) b->start_finish();
  for (size_t g = groups_.size(); g-- > 0;)
    for (const auto& b : groups_[g].buckets) b->finish();
}

void DataParallel::end_evaluation() {
  if (shared_ >= 0) close(size_t(shared_));
}

void DataParallel::publish(bool with_frozen) {
  const auto each = [&](auto&& visit) {
    for (const Group& g : groups_)
      for (const auto& b : g.buckets)
        if (with_frozen || !b->is_frozen()) visit(*b);
  };
  each([](Bucket& b) { b.start_publish(); });
  each([](Bucket& b) { b.publish(); });
}

void DataParallel::watch_for_not_finite() {
  for (const Group& g : groups_)
    for (const auto& b : g.buckets) b->watch_for_not_finite();
}

const Param* DataParallel::not_finite() const {
  for (const Group& g : groups_)
    for (const auto& b : g.buckets)
      if (const Param* p = b->not_finite()) return p;
  return nullptr;
}

std::vector<Owned> DataParallel::owned() { return owned_where(false); }
std::vector<Owned> DataParallel::frozen() { return owned_where(true); }

std::vector<Owned> DataParallel::owned_where(bool is_frozen) {
  std::vector<Owned> all;
  for (const Group& g : groups_)
    for (const auto& b : g.buckets)
      if (b->is_frozen() == is_frozen) all.push_back(b->owned());
  return all;
}

}  // namespace weft
