// DistanceAttention: attention of one text to itself or to another, whose scores know tokens' distances and nothing
// else of positions. Forward only. Source: Raffel et al., "Exploring the Limits of Transfer Learning", 2020.
#pragma once
#include "weft/nn/linear.h"
#include "weft/nn/pass.h"
#include "weft/parallel/partition.h"

namespace weft {

struct DistanceAttentionConfig {
  int64_t hidden = 0, heads = 0, head_dim = 0;
  float init_std = 0.02f;
};

class DistanceAttention {
 public:
  DistanceAttention(const std::string& name, const DistanceAttentionConfig& config, const Partition& partition);

  // Of the N heads that this rank computes.
  struct KeysValues {
    Tensor keys, values;  // [S, N, D]
  };
  // Of memory[S, H].
  KeysValues read(const Var& memory);
  // x[T, H] attends to memory as the spans say. bias: see AttentionArgs, of this rank's heads; empty: none.
  Var operator()(const Var& x, const KeysValues& memory, std::span<const AttentionSpan> spans, const Tensor& bias);

  void each_param(auto&& visit) {
    for (Linear* l : {&query_, &key_, &value_, &output_}) l->each_param(visit);
  }

 private:
  DistanceAttentionConfig config_;
  TensorParallel tensor_;
  Cut heads_;
  Linear query_, key_, value_, output_;
};

// What tokens at some distance have in common: each of the nearest distances has a bucket of its own, further ones
// share theirs with ever more, and those from max_distance on have the last.
struct DistanceBuckets {
  int64_t buckets = 32, max_distance = 128;
  bool is_two_sided = true;  // half of the buckets are for what stands behind a token

  int64_t bucket_of(int64_t distance) const;  // of the key, seen from the query
};

// values[buckets, N] -> [N, 2 max_distance + 1], as AttentionArgs has it
Tensor spread_buckets(Context& context, const DistanceBuckets& buckets, const Tensor& values);

}  // namespace weft
