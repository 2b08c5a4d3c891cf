// HeadTrade: trades some tokens of all heads for all tokens of some heads, and back, with one all_to_all.
#pragma once
#include "weft/parallel/context/context_attention.h"
#include "weft/parallel/context/head_shares.h"

namespace weft {

class HeadTrade {
 public:
  // Queries, keys and values, or what stands in their place: [tokens, heads, D] each. Without keys only the first
  // is there.
  using Three = std::array<Tensor, 3>;
  using Runs = std::array<Three, HeadRuns::kMost>;  // of each run of this rank's heads

  HeadTrade(const ContextCall& call, int64_t heads, int64_t kv_heads)
      : parallel_(call.parallel), layout_(call.plan.layout()), heads_(heads), kv_heads_(kv_heads) {}

  HeadRuns runs() const { return HeadRuns(share(layout_.rank()), heads_ / kv_heads_); }
  // From this rank's tokens of all heads to all tokens of this rank's heads, in the order of tokens.
  Runs to_heads(Context& context, const Three& tokens, bool with_keys) const;
  // The other way. What several ranks have for one key/value head is summed, in f32 or wider.
  Three to_tokens(Context& context, const Runs& heads, bool with_keys, DType dtype, int64_t dim) const;

 private:
  HeadShare share(int rank) const { return HeadShare::of(heads_, kv_heads_, rank, layout_.size()); }
  bool shares_keys() const;
  int64_t rows_of(const HeadShare& share, bool with_keys) const {
    return layout_.num_tokens() * (share.num_heads + (with_keys ? 2 * share.num_kv_heads : 0));
  }
  Tensor exchange(Context& context, const Tensor& sent) const;
  void sum_keys(Context& context, const Tensor& received, const Three& tokens) const;

  ContextParallel& parallel_;
  const ContextLayout& layout_;
  int64_t heads_, kv_heads_;
};

}  // namespace weft
