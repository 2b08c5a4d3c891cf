// Bert: a text to the scores of what may stand at each of its places. Forward only.
// Source: Devlin et al., "BERT", 2019.
#pragma once
#include "weft/models/encoder.h"

namespace weft {

struct BertConfig {
  EncoderShape encoder;                       // norms of sums
  int64_t vocab = 0, context = 0, kinds = 2;  // kinds of text, such as question and answer
  bool has_head = true;                       // for masked tokens
};

class Bert {
 public:
  // The layers are cut; what is around them is whole on every rank.
  explicit Bert(const BertConfig& config, const Partition& partition = {});
  const BertConfig& config() const { return config_; }

  // The last layer's output for each token, [T, H]. All are of the first kind of text.
  Var hidden(Context& context, std::span<const int32_t> ids);
  Tensor logits(Context& context, std::span<const int32_t> ids);  // [T, V]; UsageError without a head

  void each_param(auto&& visit) {
    visit(tokens_), visit(positions_), visit(kinds_);
    embedding_norm_.each_param(visit);
    encoder_.each_param(visit);
    if (!config_.has_head) return;
    transform_.each_param(visit);
    transform_norm_.each_param(visit);
    visit(head_bias_);
  }

 private:
  BertConfig config_;
  Param tokens_, positions_, kinds_;  // [V, H], [context, H], [kinds, H]
  Norm embedding_norm_;
  Encoder encoder_;
  Linear transform_;
  Norm transform_norm_;
  Param head_bias_;  // [V]; the head itself is the embedding
};

}  // namespace weft
