// SavedRun: what a training run puts into a checkpoint and takes out of it.
#pragma once
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/text/tokenizer.h"
#include "weft/train/run_snapshot.h"
#include "weft/train/trainer.h"
#include "weft/train/whole_tensors.h"

namespace weft {

// Tensors are saved whole, as one rank would have them, so that any mesh can load what any other has saved.
class SavedRun {
 public:
  using Texts = std::vector<std::pair<std::string, std::string>>;  // files' names and contents
  // data: the fingerprint of what is trained on; empty: not said, and not asked for. others: that every checkpoint
  // has beside what resumes it, for those who use the model.
  SavedRun(Trainer& trainer, const Recipe& recipe, const Tokenizer& tokenizer, std::string data = {},
           Texts others = {});

  // Collective: what a checkpoint of this moment holds, with the tensors spread evenly over the ranks.
  RunSnapshot take(int64_t tokens_seen);
  // Throws UsageError naming the setting or the tensor in which the checkpoint and the recipe differ.
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
  std::vector<Entry> weights();
  std::vector<Entry> optimizer_states();
  void take_tensors(std::string_view group, const std::vector<Entry>& entries, RunSnapshot& snapshot) const;
  void add_texts(int64_t tokens_seen, RunSnapshot& snapshot) const;
  void read_nf4(const Checkpoint& checkpoint, const Entry& entry, std::span<const float> values) const;
  void read(const Checkpoint& checkpoint, std::string_view group, const std::vector<Entry>& entries) const;

  Trainer& trainer_;
  const Recipe& recipe_;
  const Tokenizer& tokenizer_;
  std::string data_;
  Texts others_;
  WholeTensors whole_;
  std::vector<Owned> weights_;  // trained and frozen
  std::vector<Owned> biases_;   // of routers
};

}  // namespace weft
