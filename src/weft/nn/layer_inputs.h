// LayerInputs: what every layer is given of each token beside the residual stream: a row of a table of its own, and a
// part of what the embedding says. Source: Gemma 3n, 2025, and Gemma 4, 2026 ("per-layer embeddings").
#pragma once
#include <vector>

#include "weft/autograd/ops/embedding.h"
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/parallel/partition.h"

namespace weft {

struct LayerInputsConfig {
  int64_t layers = 0, width = 0, hidden = 0, vocab = 0;
  float norm_eps = 1e-6f, init_std = 0.02f;
  BaseFormat base = BaseFormat::plain;
};

class LayerInputs {
 public:
  LayerInputs(const std::string& name, const LayerInputsConfig& config, const Partition& partition);

  // embedded[rows, H]: of the tokens' ids, as the first layer sees it -> [width] to each row, of every layer in turn.
  // dtype: of rows of a table that is held in blocks.
  std::vector<Var> operator()(const Var& embedded, const Pass& pass, DType dtype);

  void each_param(auto&& visit) {
    visit(table_);
    projection_.each_param(visit);
    norm_.each_param(visit);
  }

 private:
  LayerInputsConfig config_;
  TensorParallel tensor_;
  Param table_;        // [V, layers * width]
  Linear projection_;  // [layers * width, H]
  Norm norm_;          // [width]
};

}  // namespace weft
