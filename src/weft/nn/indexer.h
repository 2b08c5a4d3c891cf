// Indexer: by what the rows of sparse attention select the keys that they see. Few small heads score every key, made
// from the residual stream and from the latents of queries. Nothing of it is trained here, as in Hugging Face's
// library: the choice has no gradient. Source: DeepSeek-AI, "DeepSeek-V3.2", 2025: the lightning indexer. What that
// turns by a Hadamard matrix before it rounds to 8 bits is left as it is, since products of vectors stay the same.
#pragma once
#include "weft/autograd/ops/attention.h"
#include "weft/autograd/ops/rope.h"
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/parallel/partition.h"

namespace weft {

struct IndexerConfig {
  int64_t hidden = 0, query_rank = 0;
  int64_t heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;  // of a head's elements those that turn, its first
  int64_t most = 0;        // keys that a row sees
  float norm_eps = 1e-6f;  // of keys
  float init_std = 0.02f;
  BaseFormat base = BaseFormat::plain;
};

class Indexer {
 public:
  Indexer(const std::string& name, const IndexerConfig& config, const RopeTable* rope, const Partition& partition);

  // Of rows whose results are asked for: x[rows, H] and the latents of their queries; and of all rows, x[T, H].
  struct Given {
    const Var &asked, &latents, &all;
    const int32_t *asked_positions, *all_positions;
  };
  struct Index {
    KeySelection selection;  // without bits
    Var keys;                // [T, 1, D]
  };
  Index operator()(const Given& given);
  // What rows select of the keys of their spans, which hold all rows: AttentionArgs::key_bits.
  static Tensor mark(Context& context, const Index& index, std::span<const AttentionSpan> spans);

  void each_param(auto&& visit) {
    query_.each_param(visit);
    key_.each_param(visit);
    key_norm_.each_param(visit);
    weights_.each_param(visit);
  }

 private:
  IndexerConfig config_;
  const RopeTable* rope_;
  Linear query_, key_;
  Norm key_norm_;
  Linear weights_;  // of heads in a row's scores
};

}  // namespace weft
