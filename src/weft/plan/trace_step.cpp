// trace_step: the trainer on recorded kernels, a traced world and watched memory.
#include "weft/plan/trace_step.h"

#include "weft/comm/trace/trace.h"
#include "weft/plan/continued_step.h"
#include "weft/plan/memory_watch.h"
#include "weft/train/counted_objective.h"

namespace weft::plan {
namespace {

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
  Context context{.kernels = kernels, .stream = stream, .expert_load = options.expert_load};
  const auto world = make_trace_communicator(rank, recipe.mesh.size());
  world->set_observer([&](const CommEvent& event) { record(stream, event); });
  const EqualRows batches(recipe);
  Trainer trainer(context, *world, recipe, batches);
  MemorySplit state = state_of(trainer, recipe.mesh.zero, memory.stats().live_bytes);
  const std::unique_ptr<Objective> objective = counted_objective(recipe, batches, options.teacher, trainer);
  trainer.set_objective(objective.get());
  const int64_t made = memory.stats().live_bytes;
  state[MemoryUse::weights] += made - state.total();  // a teacher's
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
  trace.peak = watch.peak(), trace.peaks = watch.peaks();
  trace.host_bytes = trainer.host_bytes();
  return trace;
}

int first_rank_of_stage(const MeshShape& shape, int pp) { return shape.size() / shape.pp * pp; }

std::vector<StepTrace> trace_stages(const Recipe& recipe, const TraceOptions& options) {
  std::vector<StepTrace> all;
  for (int pp = 0; pp < recipe.mesh.shape.pp; ++pp)
    all.push_back(trace_step(recipe, first_rank_of_stage(recipe.mesh.shape, pp), options));
  return all;
}

std::vector<StepTrace> trace_memory(const Recipe& recipe, TraceOptions options) {
  options.has_events = false;
  const ContinuedStep step(recipe);
  if (step.is_whole()) return trace_stages(recipe, options);
  const std::vector<StepTrace> earlier = trace_stages(with_accumulation(recipe, step.earlier), options);
  std::vector<StepTrace> later = trace_stages(with_accumulation(recipe, step.later), options);
  for (size_t i = 0; i < later.size(); ++i) step.go_on(later[i], earlier[i]);
  return later;
}

}  // namespace weft::plan
