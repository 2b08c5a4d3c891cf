// trace_step: the trainer on recorded kernels, a traced world and watched memory.
#include "weft/plan/trace_step.h"

#include "weft/comm/trace/trace.h"
#include "weft/plan/memory_watch.h"
#include "weft/train/trainer.h"

namespace weft::plan {
namespace {

// Rows that are all alike and cost nothing to make.
class EqualRows final : public BatchSource {
 public:
  EqualRows(int64_t seq_len, int64_t global_batch)
      : seq_len_(int32_t(seq_len)), num_targets_(seq_len * global_batch) {}

  void fill(int64_t, int32_t, int32_t rows, Batch& batch) const override {
    if (batch.rows == rows && batch.seq_len == seq_len_) return;
    batch.reset(rows, seq_len_);
    std::fill(batch.ids.begin(), batch.ids.end(), 0);
    std::fill(batch.targets.begin(), batch.targets.end(), 0);
    for (size_t i = 0; i < batch.positions.size(); ++i) batch.positions[i] = int32_t(i) % seq_len_;
    for (int32_t r = 0; r <= rows; ++r) batch.sequence_starts.push_back(r * seq_len_);
    batch.num_targets = int64_t(rows) * seq_len_;
  }
  int64_t num_targets(int64_t) const override { return num_targets_; }

 private:
  int32_t seq_len_;
  int64_t num_targets_;
};

// What is live after the trainer was made, by use.
MemorySplit state_of(Trainer& trainer, Zero zero, int64_t live_bytes) {
  MemorySplit split;
  const auto weights = [&](const Owned& o) {
    const Tensor& values = o.values ? o.values : o.master;
    split[MemoryUse::weights] += int64_t(values.bytes()) * (zero == Zero::parameters ? 1 : o.shard->size());
  };
  for (const Owned& o : trainer.optimizer().owned()) {
    weights(o);
    const int64_t parts = zero <= Zero::optimizer ? o.shard->size() : 1;
    if (o.grads) split[MemoryUse::gradients] += int64_t(o.grads.bytes()) * parts;
  }
  for (const Owned& o : trainer.frozen()) weights(o);
  split[MemoryUse::optimizer] = live_bytes - split.total();
  return split;
}

}  // namespace

StepTrace trace_step(const Recipe& recipe, int rank, const TraceOptions& options) {
  StepTrace trace;
  Kernels kernels = recorded_kernels();
  if (options.packs_weights) kernels.packed_matmul_b_bytes = cpu_kernels().packed_matmul_b_bytes;
  ThreadTeam team(1);
  Allocator memory(Device::meta);
  RecordedStream stream(team, memory, trace.events);
  Context context{.kernels = kernels, .stream = stream};
  const auto world = make_trace_communicator(rank, recipe.mesh.size());
  world->set_observer([&](const CommEvent& event) { record(stream, event); });
  const EqualRows batches(recipe.train.seq_len, recipe.train.global_batch);
  Trainer trainer(context, *world, recipe, batches);
  const int64_t made = memory.stats().live_bytes;
  MemorySplit state = state_of(trainer, recipe.mesh.zero, made);
  trainer.step();
  // What the first step has left behind: states of optimizers, and packed copies of weights.
  const int64_t grown = memory.stats().live_bytes - made;
  state[options.packs_weights ? MemoryUse::weights : MemoryUse::optimizer] += grown;
  trace.state_bytes = memory.stats().live_bytes;

  MemoryWatch watch(memory, stream, state, options.has_memory ? &trace.memory : nullptr);
  context.observer = &watch;
  trainer.observe_actions([&](const Action& action, bool is_begin) {
    watch.set_action(is_begin ? &action : nullptr);
    if (is_begin)
      stream.add(
          {.kind = Event::Kind::action, .action = action.kind, .peer = action.stage, .tag = action.micro_batch});
    else
      stream.add({.kind = Event::Kind::end_action});
  });
  stream.set_recording(options.has_events);
  trainer.step();
  stream.set_recording(false);
  context.observer = nullptr;
  trace.peak = watch.peak();
  return trace;
}

int first_rank_of_stage(const MeshShape& shape, int pp) { return shape.size() / shape.pp * pp; }

std::vector<StepTrace> trace_stages(const Recipe& recipe, const TraceOptions& options) {
  std::vector<StepTrace> all;
  for (int pp = 0; pp < recipe.mesh.shape.pp; ++pp)
    all.push_back(trace_step(recipe, first_rank_of_stage(recipe.mesh.shape, pp), options));
  return all;
}

}  // namespace weft::plan
