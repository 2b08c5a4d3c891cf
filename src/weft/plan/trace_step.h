// trace_step: runs a recipe's trainer on one rank of a world that is not there, and writes down what it does.
#pragma once
#include "weft/plan/step_trace.h"
#include "weft/train/recipe.h"

namespace weft::plan {

struct TraceOptions {
  bool has_events = true;                // false: memory only
  bool has_memory = false;               // what is held over time, too
  bool packs_weights = false;            // count the copies of weights that the CPU's matrix products keep
  const ModelConfig* teacher = nullptr;  // of distill.teacher; null: it is left out
  double expert_load = 1;                // Context's
};

// The second step of the trainer, which is as all later ones. The recipe's model must be complete. Nothing is
// computed and no memory is taken, but the program is the one that a run executes, so the allocator's figures are
// those of a run to the byte, apart from the scratch of kernels.
StepTrace trace_step(const Recipe& recipe, int rank, const TraceOptions& options = {});

// Of every stage of the pipeline: its first rank.
std::vector<StepTrace> trace_stages(const Recipe& recipe, const TraceOptions& options = {});

// The same without events, of a step that is not played whole (ContinuedStep): as quick with many micro-batches as
// with few.
std::vector<StepTrace> trace_memory(const Recipe& recipe, TraceOptions options = {});

// A world rank of that stage.
int first_rank_of_stage(const MeshShape& shape, int pp);

}  // namespace weft::plan
