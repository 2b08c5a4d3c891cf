// SavedRun: what a training run puts into a checkpoint and takes out of it.
#pragma once
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/text/tokenizer.h"
#include "weft/train/trainer.h"

namespace weft {

// Every rank holds the same state, so one rank saves and every rank loads.
class SavedRun {
 public:
  SavedRun(Trainer& trainer, const Recipe& recipe, const Tokenizer& tokenizer);

  // Returns the checkpoint's path.
  std::string save(CheckpointStore& store, int64_t tokens_seen);
  // Throws Error naming the tensor or the setting in which the checkpoint and the recipe differ.
  TrainingState load(const Checkpoint& checkpoint);

 private:
  std::vector<NamedTensor> weights() const;
  std::vector<NamedTensor> moments() const;

  Trainer& trainer_;
  const Recipe& recipe_;
  const Tokenizer& tokenizer_;
};

}  // namespace weft
