// PolicyModel: a model that only runs forward, with the weights of one that is being trained.
#pragma once
#include <vector>

#include "weft/pretrained/forward_model.h"
#include "weft/train/trainer.h"
#include "weft/train/whole_tensors.h"

namespace weft {

// Where the trainer keeps a weight whole as this model's rank would, the two have one memory; where it does not
// (ZeRO-3, stages of other layers), the weight is gathered for as long as it is used.
class PolicyModel {
 public:
  // mesh: of the ranks that hold one model together. The trainer and what it was made of outlive this.
  PolicyModel(Trainer& trainer, const Recipe& recipe, const Mesh& mesh);

  ForwardModel& model() { return model_; }
  // Collective over the trainer's world. The weights are those of now, until the trainer changes them.
  void take_weights();
  // Gives their memory back, with what was made of them for products.
  void drop_weights();

 private:
  bool share(const Param* theirs, Param& here);
  void gather(WholeTensors& whole, std::span<const Owned> owned, const WholeTensors::Info& info, Param* here);

  Trainer& trainer_;
  const Recipe& recipe_;
  ForwardModel model_;
};

}  // namespace weft
