// Small recipes and ranks for tests of training.
#pragma once
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/parallel/data/near.h"
#include "weft/parallel/data/wide_values.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/checkpoint_saver.h"
#include "weft/train/saved_run.h"
#include "weft/train/trainer.h"
#include "weft/train/verify.h"

namespace weft {

// A model that trains in milliseconds; `rows` is the global batch.
inline Recipe small_recipe(const std::string& family, Precision precision, int dp, int64_t accumulation = 1,
                           int64_t rows = 8) {
  Recipe r;
  r.model = family_defaults(family);
  r.model.layers = 2, r.model.hidden = 32, r.model.heads = 4, r.model.ffn = 48, r.model.vocab = 61;
  r.model.kv_heads = r.model.norm == NormKind::rms ? 2 : 4;
  r.model.context = 16;
  complete(r.model);
  r.train.steps = 100, r.train.seq_len = 16, r.train.global_batch = rows, r.train.precision = precision;
  r.train.accumulation = accumulation;
  r.train.micro_batch = rows / (dp * accumulation);
  r.optimizer.schedule = {.decay = Decay::cosine, .lr = 1e-3, .min_lr = 1e-4, .warmup = 3, .steps = 100};
  r.mesh.shape.shard = dp;
  return r;
}

inline SyntheticBatches batches_of(const Recipe& r) {
  return {int32_t(r.train.seq_len), int32_t(r.train.global_batch), int32_t(r.model.vocab), 3};
}

// Puts a number into the first element of a weight.
inline void overwrite(Trainer& trainer, const std::string& name, float value) {
  for (const Owned& o : trainer.optimizer().owned())
    for (const Piece& piece : o.pieces)
      if (piece.param->name == name && piece.first == 0) {
        const Near near(o, Access::write);
        visit_wide(trainer.context(), o, piece.offset, 1, true, true,
                   [&](const Tensor& weight, int64_t) { *weight.data<float>() = value; });
        trainer.optimizer().masters_changed();
      }
}

// Every token chooses the first experts. Collective.
inline void zero_routers(Trainer& trainer) {
  for (const Owned& o : trainer.optimizer().owned())
    for (const Piece& piece : o.pieces)
      if (piece.param->name.ends_with(".router.weight")) {
        const Near near(o, Access::write);
        visit_wide(trainer.context(), o, piece.offset, piece.count, true, true,
                   [](const Tensor& weight, int64_t) { std::fill_n(weight.data<float>(), weight.numel(), 0.f); });
      }
  trainer.weights_changed();
}

// Saves and waits until it is done. Collective.
inline std::string save_now(SavedRun& saved, const Trainer& trainer, CheckpointStore& store) {
  CheckpointSaver saver(trainer.mesh().world(), store);
  saver.start(saved.take(0));
  return saver.finish();
}

// Trains a model for some steps and saves it; returns where.
inline std::string saved_model(const Recipe& recipe, const std::string& folder, int steps = 2) {
  std::string path;
  run_ranks(1, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    const ByteTokenizer tokenizer;
    Trainer trainer(rank.context, world, recipe, batches);
    for (int i = 0; i < steps; ++i) trainer.step();
    SavedRun saved(trainer, recipe, tokenizer);
    CheckpointStore store(folder);
    path = save_now(saved, trainer, store);
  });
  return path;
}

// Loads what a folder's newest checkpoint has, if there is one, takes some steps and saves there. Returns what the
// steps gave on rank 0, where `then` looks at the trainer.
inline std::vector<StepResult> go_on_in(const std::string& folder, const Recipe& recipe, int steps,
                                        const std::function<void(Trainer&)>& then = {}) {
  std::vector<StepResult> results;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    const ByteTokenizer tokenizer;
    Trainer trainer(rank.context, world, recipe, batches);
    SavedRun saved(trainer, recipe, tokenizer);
    CheckpointStore store(folder);
    if (const FoundCheckpoint found = store.newest_valid(); found.checkpoint) saved.load(*found.checkpoint);
    std::vector<StepResult> mine;
    for (int i = 0; i < steps; ++i) mine.push_back(trainer.step());
    save_now(saved, trainer, store);
    if (world.rank() != 0) return;
    if (then) then(trainer);
    results = std::move(mine);
  });
  return results;
}
inline std::vector<double> losses_of(const std::vector<StepResult>& results) {
  std::vector<double> losses;
  for (const StepResult& r : results) losses.push_back(r.loss);
  return losses;
}

// Rounding errors stay rounding errors: AdamW divides by little more than the gradients, and steps are equally long.
inline void make_smooth(Recipe& recipe) {
  recipe.optimizer.adamw.eps = 1e-2;
  recipe.optimizer.schedule.decay = Decay::constant, recipe.optimizer.schedule.warmup = 0;
}

// Some steps of a trainer; tensors are complete on rank 0. Collective.
inline TrainedRun take_steps(const Recipe& recipe, Trainer& trainer, int steps) {
  TrainedRun run;
  for (int i = 0; i < steps; ++i) {
    const StepResult r = trainer.step();
    run.losses.push_back(r.loss), run.grad_norms.push_back(r.grad_norm);
  }
  add_tensors(recipe, trainer, run);
  return run;
}

// The batch of step 0 at every step, which is learnt by heart.
class FixedBatches final : public BatchSource {
 public:
  explicit FixedBatches(const Recipe& recipe) : batches_(batches_of(recipe)) {}
  void fill(int64_t, int32_t first_row, int32_t rows, Batch& batch) const override {
    batches_.fill(0, first_row, rows, batch);
  }
  int64_t num_targets(int64_t step) const override { return batches_.num_targets(step); }

 private:
  SyntheticBatches batches_;
};

// The run of a recipe whose ranks are threads.
inline TrainedRun train_mesh(const Recipe& recipe, int steps, int threads = 1) {
  const SyntheticBatches batches = batches_of(recipe);
  TrainedRun run;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TrainedRun mine = train_some(recipe, batches, world, steps, threads);
    if (world.rank() == 0) run = std::move(mine);
  });
  return run;
}

}  // namespace weft
