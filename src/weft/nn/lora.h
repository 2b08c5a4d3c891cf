// Lora: the low-rank adapter of one linear layer, cut over ranks as that layer is.
#pragma once
#include "weft/autograd/ops/lora.h"
#include "weft/nn/lora_config.h"
#include "weft/nn/pass.h"

namespace weft {

struct AdapterConfig {
  int64_t rank = 0;  // 0: no adapter
  float scale = 1, dropout = 0;
};
inline AdapterConfig adapter_of(const LoraConfig& c, LoraTarget target) {
  return c.has(target) ? AdapterConfig{.rank = c.rank, .scale = c.scale(), .dropout = c.dropout} : AdapterConfig{};
}

// Where the layer's inputs are cut so is `a`, where its outputs are so is `b`; the other factor is held by every rank
// of the tensor group, each of which sees a part of its gradient. No adapter sends anything: the sum over ranks at
// the end of a region is that of adapted outputs too.
class Lora {
 public:
  // linear: the placement of the layer's weight [O, I]. is_sum: this rank makes a part of a sum, and is_first says
  // whether it is the first of those who do.
  Lora(const std::string& name, const AdapterConfig& config, const Placement& linear, bool is_sum, bool is_first);

  // What is added to y = x wᵀ: y is written where nobody else has it.
  Var operator()(const Var& y, const Var& x, const Pass& pass);

  void each_param(auto&& visit) {
    visit(a_);
    visit(b_);
  }

 private:
  AdapterConfig config_;
  uint64_t dropout_site_;
  Param a_, b_;  // [r, I], [O, r]
};

}  // namespace weft
