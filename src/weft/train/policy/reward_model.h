// RewardModel: what answers are worth by a model with one label, which stands beside the trained one on its mesh.
#pragma once
#include <span>
#include <vector>

#include "weft/pretrained/forward_model.h"
#include "weft/text/tokenizer.h"
#include "weft/train/micro_batches.h"

namespace weft {

class RewardModel {
 public:
  // Reads its weights. Throws UsageError where it has not one label, reads other tokens than the trained model
  // writes, or shorter texts. All but the source outlive this.
  RewardModel(const Recipe& recipe, const BatchSource& batches, const ModelSource& source, const Tokenizer& tokenizer,
              Context& context, const Mesh& mesh);

  // The scores of texts, each of at most train.seq_len tokens; several share a row. Collective: the same texts, and
  // the same scores, on every rank.
  std::vector<double> score(std::span<const std::vector<int32_t>> texts);

 private:
  const Recipe& recipe_;
  const Mesh& mesh_;
  MicroBatches read_;
  ForwardModel model_;
};

}  // namespace weft
