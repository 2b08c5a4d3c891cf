// SavedRun: what a training run puts into a checkpoint and takes out of it.
#pragma once
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/text/tokenizer.h"
#include "weft/train/trainer.h"
#include "weft/train/whole_tensors.h"

namespace weft {

// Tensors are saved whole, as one rank would have them, so that any mesh can load what any other has saved.
class SavedRun {
 public:
  SavedRun(Trainer& trainer, const Recipe& recipe, const Tokenizer& tokenizer);

  // Collective: tensors are put together from all ranks, rank 0 writes. Returns the checkpoint's path on rank 0.
  std::string save(CheckpointStore& store, int64_t tokens_seen);
  // Throws Error naming the tensor or the setting in which the checkpoint and the recipe differ.
  TrainingState load(const Checkpoint& checkpoint);

 private:
  struct Entry {  // of a file
    std::string name;
    Shape shape;
    std::string param, state;      // no state: the weight itself
    std::span<const Owned> owned;  // where the weight is
  };
  // What this rank has of it.
  void visit(const Entry& entry, bool is_written, Optimizer::VisitState visit) const;
  Tensor gather(const Entry& entry);
  std::vector<Entry> weights();
  std::vector<Entry> optimizer_states();
  void write(CheckpointWriter* writer, const std::string& file, const std::vector<Entry>& entries);
  void read(const Checkpoint& checkpoint, std::string_view group, const std::vector<Entry>& entries) const;

  Trainer& trainer_;
  const Recipe& recipe_;
  const Tokenizer& tokenizer_;
  WholeTensors whole_;
  std::vector<Owned> biases_;  // of routers
};

}  // namespace weft
