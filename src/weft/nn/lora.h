// Lora: the low-rank adapter of one linear layer, cut over ranks as that layer is; also with trained lengths of rows.
#pragma once
#include <optional>

#include "weft/autograd/ops/lora.h"
#include "weft/comm/communicator.h"
#include "weft/nn/lora_config.h"
#include "weft/nn/pass.h"

namespace weft {

struct AdapterConfig {
  int64_t rank = 0;  // 0: no adapter
  float scale = 1, dropout = 0;
  bool is_dora = false;
  Communicator* inputs = nullptr;  // the ranks among whom the layer's inputs are cut; null: they are all here
};
inline AdapterConfig adapter_of(const LoraConfig& c, LoraTarget target, Communicator* inputs = nullptr) {
  if (!c.has(target)) return {};
  return {.rank = c.rank, .scale = c.scale(), .dropout = c.dropout, .is_dora = c.is_dora, .inputs = inputs};
}

// The factors beside a weight [O, I], or a stack of experts' [E, O, I], that is placed as `linear`: a [r, I] or
// [E, r, I], b [O, r] or [E, O, r], cut as that is.
struct LoraPlacements {
  Placement a, b;
};
LoraPlacements lora_placements(int64_t rank, const Placement& linear);
// With what their gradients are. is_sum: this rank makes a part of a sum, and is_first says whether it is the first
// of those who do.
LoraPlacements trained_lora_placements(int64_t rank, const Placement& linear, bool is_sum, bool is_first);

// How factors start: b at zero, and a as wide as the uniform distribution of the common implementations,
// U(-1/sqrt(I), 1/sqrt(I)).
Init lora_a_init(const Placement& linear);

// Where the layer's inputs are cut so is `a`, where its outputs are so is `b`; the other factor is held by every rank
// of the tensor group, each of which sees a part of its gradient. The sum over ranks at the end of a region is that
// of adapted outputs too, so adapters send nothing; but where inputs are cut, trained lengths need the others'
// squares.
class Lora {
 public:
  // weight: the layer's, [O, I], which outlives this. is_sum, is_first: see trained_lora_placements.
  Lora(const std::string& name, const AdapterConfig& config, Param& weight, bool is_sum, bool is_first);

  // Of y = x wᵀ, to which a bias is added only afterwards where rows have trained lengths; y is written where nobody
  // else has it.
  Var operator()(const Var& y, const Var& x, const Pass& pass);

  void each_param(auto&& visit) {
    visit(a_);
    visit(b_);
    if (magnitude_) visit(*magnitude_);
  }

 private:
  AdapterConfig config_;
  uint64_t dropout_site_;
  Param& weight_;
  Param a_, b_;                     // [r, I], [O, r]
  std::optional<Param> magnitude_;  // [O]
};

}  // namespace weft
