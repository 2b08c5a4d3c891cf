// Small recipes and ranks for tests of training.
#pragma once
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/parallel/data/near.h"
#include "weft/train/trainer.h"
#include "weft/train/whole_tensors.h"

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

// What a run leaves behind, as plain numbers.
struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::string> names;
  std::vector<std::vector<float>> gradients, weights;  // of the last step, by parameter
};

// Collective: whole tensors, put together from all ranks.
inline void collect(const Recipe& recipe, Trainer& trainer, Trained& out) {
  const auto owned = trainer.optimizer().owned();
  const NearInTurn in_turn(owned);
  WholeTensors whole(recipe, trainer.mesh(), owned);
  const std::vector<Tensor> gradients = gradients_of(owned), masters = masters_of(owned);
  for (const auto& info : whole.all()) {
    const auto copy = [&](std::span<const Tensor> parts) {
      const Tensor t = whole.gather(info, parts);
      return std::vector<float>(t.data<float>(), t.data<float>() + t.numel());
    };
    out.names.push_back(info.name);
    out.gradients.push_back(copy(gradients));
    out.weights.push_back(copy(masters));
  }
}

// This rank's part of `steps` steps; rank 0's result is as good as any.
inline Trained train_rank(const Recipe& recipe, Communicator& world, int steps, int threads = 1) {
  TestRank rank(cpu_kernels(), threads);
  const SyntheticBatches batches = batches_of(recipe);
  Trainer trainer(rank.context, world, recipe, batches);
  Trained out;
  for (int i = 0; i < steps; ++i) {
    const StepResult r = trainer.step();
    out.losses.push_back(r.loss), out.norms.push_back(r.grad_norm);
  }
  collect(recipe, trainer, out);
  return out;
}

// Puts a number into the first element of a weight.
inline void overwrite(Trainer& trainer, const std::string& name, float value) {
  for (const Owned& o : trainer.optimizer().owned())
    for (const Piece& piece : o.pieces)
      if (piece.param->name == name && piece.first == 0) {
        const Near near(o, Access::write);
        o.master.data<float>()[piece.offset] = value;
        trainer.optimizer().masters_changed();
      }
}

inline Trained train_threads(const Recipe& recipe, int steps, int threads = 1) {
  Trained out;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    Trained mine = train_rank(recipe, world, steps, threads);
    if (world.rank() == 0) out = std::move(mine);
  });
  return out;
}

// Largest difference of two lists, relative to the largest magnitude in `want`.
inline double relative_difference(const std::vector<float>& got, const std::vector<float>& want) {
  double worst = 0, largest = 1e-12;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::abs(double(got[i]) - double(want[i])));
    largest = std::max(largest, std::abs(double(want[i])));
  }
  return worst / largest;
}

}  // namespace weft
