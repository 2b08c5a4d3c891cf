// AdamW8: AdamW whose moments take 8 bits an element. Source: Dettmers et al., "8-bit Optimizers via Block-wise
// Quantization", 2021.
#pragma once
#include "weft/optim/adamw.h"

namespace weft {

// Moments of parameters with fewer elements than this stay f32, as in the paper.
constexpr int64_t kLeast8BitElements = 4096;

// Blocks count from a piece's first element. Data-parallel shards begin at blocks' borders, so that their number
// changes nothing but what it changes in gradients; tensor parallelism cuts other blocks, and its rounding differs.
class AdamW8 final : public Optimizer {
 public:
  // For everything: 8 bits whatever the size.
  AdamW8(Context& context, std::vector<Owned> owned, const AdamWOptions& options, bool for_everything = false);

  // As f32 numbers, which become the same codes again.
  std::vector<State> states_of(std::string_view param, const Shape& whole) const override;
  void visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) override;

 private:
  struct Codes {  // of a moment
    Tensor codes, scales;
  };
  void update(double lr, double grad_scale) override;
  std::vector<std::vector<Codes>> make_codes() const;

  AdamWOptions options_;
  IsMeant is_large_;
  AdamW small_;
  std::vector<std::vector<Codes>> m_, v_;  // of owned_[i].pieces[j]; empty where small
};

}  // namespace weft
