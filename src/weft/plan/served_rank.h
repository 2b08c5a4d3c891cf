// ServedRank: one rank of a served model over meta memory: what it holds, and what a step of serving does.
#pragma once
#include <memory>

#include "weft/base/ceil_div.h"
#include "weft/plan/recorded_kernels.h"
#include "weft/serve/step_runner.h"

namespace weft::plan {

// A model and how its weights are held.
struct ServedModel {
  ModelConfig config;                   // complete
  const ModelSource* source = nullptr;  // what it has in blocks stays in them where `blocks` says so; null: nothing
  DType dtype = DType::bf16;
  BlockChoice blocks = {};
  int64_t far_layers = 0;  // of each stage: their weights come from beyond the rank's memory, two at a time
};

struct CacheShape {
  int64_t num_blocks = 1, block_tokens = 16;
  int64_t num_states = 1;                // of each layer that has such
  std::optional<RowFormat> format = {};  // of keys and values; none: as the model's dtype
};

// Some of the rows of a step: of so many sequences alike.
struct AlikeRows {
  int64_t sequences = 1;
  int64_t rows = 1;    // of each
  int64_t first = 0;   // tokens of each that the cache holds already
  int64_t wanted = 1;  // rows of each whose logits are wanted, its last
  int64_t num_blocks(int64_t block_tokens) const { return ceil_div(first + rows, block_tokens); }
};

// Bytes.
struct ServedMemory {
  int64_t weights = 0;  // as products read them, with rotary tables
  int64_t cache = 0;    // keys and values
  int64_t states = 0;   // of layers that have such in their place
  int64_t step = 0;     // activations, logits and messages of the largest step so far
  int64_t loading = 0;  // what the allocator keeps of the time when weights were packed
  int64_t total() const { return weights + cache + states + step + loading; }
};
// a + b * times.
ServedMemory add(const ServedMemory& a, const ServedMemory& b, int64_t times = 1);

// The ForwardModel and the StepRunner that serve, over recorded kernels and the `trace` communicator: nothing is
// computed and no memory is taken, but figures are those of the allocator and of the program. Not seen: the sampler,
// what the host does between steps, and what the allocator keeps of steps of other sizes.
class ServedRank {
 public:
  // packs_weights: as the CPU's products like them. Throws UsageError for a mesh that cannot serve the model.
  ServedRank(const ServedModel& model, const MeshShape& mesh, int rank, const CacheShape& cache,
             bool packs_weights = false);

  // As the driver or as one that follows: both do the same.
  StepTrace step(std::span<const AlikeRows> rows);
  // The pass behind it of a part that predicts a token further on, over the same rows.
  StepTrace predict();
  ServedMemory memory() const;
  // Of the weights, what is held as it is stored, and not as products like it.
  int64_t value_bytes();

 private:
  StepTrace traced(FunctionRef<void()> pass);
  void run_predictor();

  ThreadTeam team_{1};
  Allocator allocator_{Device::meta};
  std::vector<Event> events_;
  RecordedStream stream_{team_, allocator_, events_};
  Kernels kernels_;
  Context context_{kernels_, stream_};
  std::unique_ptr<Communicator> world_;
  Mesh mesh_;
  ForwardModel model_;
  ServedMemory loaded_;
  StepRunner runner_;
  int64_t num_rows_ = 1;  // of the last step
};

// The first rank of each stage of the pipeline, or its first of place `context` along cp. Others of a stage do the
// same at the same time, but for those along cp: each has other rows, which look at more or fewer keys.
std::vector<std::unique_ptr<ServedRank>> serve_stages(const ServedModel& model, const MeshShape& mesh,
                                                      const CacheShape& cache, bool packs_weights = false,
                                                      int context = 0);
// The same step on each of them.
std::vector<StepTrace> trace_step(std::span<const std::unique_ptr<ServedRank>> stages,
                                  std::span<const AlikeRows> rows);
// And of the pass behind it.
std::vector<StepTrace> trace_prediction(std::span<const std::unique_ptr<ServedRank>> stages);

}  // namespace weft::plan
