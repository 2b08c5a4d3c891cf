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
  // The layers are cut; what is around them is whole on every rank of the first or the last stage.
  explicit Bert(const BertConfig& config, const Partition& partition = {}, const Stages& stages = {});
  const BertConfig& config() const { return config_; }

  // The last layer's output for each token, [T, H]. All are of the first kind of text. Here and below: on the last
  // stage; empty on the others.
  Var hidden(Context& context, std::span<const int32_t> ids);
  Tensor logits(Context& context, std::span<const int32_t> ids);  // [T, V]; UsageError without a head

  // Those of this stage.
  void each_param(auto&& visit) {
    const bool has_head = stages_.is_last() && config_.has_head;
    if (stages_.is_first() || has_head) visit(tokens_);
    if (stages_.is_first()) {
      visit(positions_), visit(kinds_);
      embedding_norm_.each_param(visit);
    }
    encoder_.each_param(visit);
    if (!has_head) return;
    transform_.each_param(visit);
    transform_norm_.each_param(visit);
    visit(head_bias_);
  }

 private:
  BertConfig config_;
  Stages stages_;
  Param tokens_, positions_, kinds_;  // [V, H], [context, H], [kinds, H]
  Norm embedding_norm_;
  Encoder encoder_;
  Linear transform_;
  Norm transform_norm_;
  Param head_bias_;  // [V]; the head itself is the embedding
};

}  // namespace weft
