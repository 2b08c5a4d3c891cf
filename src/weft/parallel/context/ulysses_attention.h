// Ulysses attention: all_to_all trades tokens for heads, attention runs on whole sequences, and back.
// Source: Jacobs et al., "DeepSpeed Ulysses", 2023.
#pragma once
#include "weft/parallel/context/head_trade.h"

namespace weft {

struct UlyssesAttentionOp {
  static constexpr std::string_view kName = "ulysses_attention";
  static constexpr bool kAlwaysBackward = true;
  ContextCall call;
  int64_t heads = 0, kv_heads = 0;
  Tensor y = {};                   // this rank's tokens
  HeadTrade::Runs qkv = {};        // all tokens of this rank's heads
  HeadTrade::Runs y_and_lse = {};  // the same, two a run

  Tensor forward(Context& context, const Tensor& q, const Tensor& k, const Tensor& v);
  std::array<Tensor, 3> backward(Context& context, const Tensor& dy);

 private:
  AttentionShape shape(Context& context, const HeadRun& run, const HeadTrade::Three& tensors) const;
};

}  // namespace weft
