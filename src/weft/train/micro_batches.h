// MicroBatches: the tokens of the micro-batches that are under way on this rank.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/data/batch_source.h"
#include "weft/nn/pass.h"
#include "weft/parallel/mesh.h"
#include "weft/train/pass_of.h"
#include "weft/train/recipe.h"

namespace weft {

class MicroBatches {
 public:
  // num_uses: how many stages of this rank run each micro-batch. Everything outlives this.
  MicroBatches(const Recipe& recipe, const Mesh& mesh, const BatchSource& batches, int num_uses);

  struct Slot {
    Batch batch;  // of this rank
    std::vector<TokenSpan> tokens;
    SequenceSpans spans;
    std::optional<ContextPlan> context;  // where the tokens are spread over ranks
    Pass pass;
    int64_t first_row = 0;  // of the step's global batch
    int micro_batch = -1;   // -1: free
    int uses_left = 0;
  };
  // Of this rank in a step.
  int64_t count(int64_t step) const { return batches_.num_micro_batches(step, recipe_.train.accumulation); }
  // The micro-batch of a step, read when first asked for and kept until released by every use. Its address is stable
  // for as long.
  const Slot& get(int64_t step, int micro_batch);
  // Of the micro-batches that are read from now on; see Pass::loss_scale.
  void set_loss_scale(float scale) { loss_scale_ = scale; }
  // See Pass::routing.
  void set_routing(RoutingReplay* routing) { routing_ = routing; }
  void release(int micro_batch);
  // Of the whole step, over all ranks.
  int64_t num_targets(int64_t step) const { return batches_.num_targets(step); }
  // A batch for evaluation, without dropout; kept until the next one.
  const Slot& evaluation(const Batch& whole, bool uses_adapters = true);

 private:
  void fill(Slot& slot, const Batch& whole, int64_t first_row);

  const Recipe& recipe_;
  const Mesh& mesh_;
  const BatchSource& batches_;
  int num_uses_;
  float loss_scale_ = 0;
  RoutingReplay* routing_ = nullptr;
  ContextParallel context_;
  Batch whole_;
  std::vector<std::unique_ptr<Slot>> slots_;
  Slot evaluation_;
};

}  // namespace weft
