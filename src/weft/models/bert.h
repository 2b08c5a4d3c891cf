// Bert: texts to what becomes of their tokens, to the scores of what may stand at each of their places, or to scores
// of the texts. Forward only. Sources: Devlin et al., "BERT", 2019; Liu et al., "RoBERTa", 2019; Conneau et al.,
// "XLM-R", 2020; Sanh et al., "DistilBERT", 2019; Song et al., "MPNet", 2020.
#pragma once
#include "weft/models/encoder.h"
#include "weft/models/text_rows.h"
#include "weft/nn/distance_attention.h"

namespace weft {

struct BertConfig {
  EncoderShape encoder;  // norms of sums
  int64_t vocab = 0;
  int64_t positions = 0;                       // rows of their table, ...
  int64_t first_position = 0;                  // ... of which the first are no text's
  int64_t kinds = 2;                           // of text, such as question and answer; 0: the model tells none apart
  DistanceBuckets distances = {.buckets = 0};  // what scores of attention know of tokens' distances; 0: nothing
  bool has_head = true;                        // for masked tokens
  int64_t labels = 0;                          // scores of a text; 0: it has none
  Activation pooler = Activation::tanh;        // of what they are made of
  int64_t context() const { return positions - first_position; }
};

class Bert {
 public:
  // The layers are cut; what is around them is whole on every rank of the first or the last stage.
  explicit Bert(const BertConfig& config, const Partition& partition = {}, const Stages& stages = {});
  const BertConfig& config() const { return config_; }
  // Without any yet.
  TextRows no_texts() const { return {config_.first_position, config_.kinds > 1}; }

  // The last layer's output for each row, [T, H]. Here and below: on the last stage; empty on the others. Tokens are
  // those of the vocabulary, and no text is longer than the context.
  Var hidden(Context& context, const TextRows& texts);
  // Of what hidden() gave: [T, V], and [texts, labels]; UsageError without such a head.
  Tensor logits(const Var& hidden);
  Tensor scores(const Var& hidden, const TextRows& texts);

  // Those of this stage.
  void each_param(auto&& visit) {
    const bool has_head = stages_.is_last() && config_.has_head;
    if (stages_.is_first() || has_head) visit(tokens_);
    if (stages_.is_first()) {
      visit(positions_);
      if (config_.kinds > 0) visit(kinds_);
      embedding_norm_.each_param(visit);
    }
    if (has_distances()) visit(distances_);
    encoder_.each_param(visit);
    if (has_head) {
      transform_.each_param(visit);
      transform_norm_.each_param(visit);
      visit(head_bias_);
    }
    if (stages_.is_last() && config_.labels > 0) pooler_.each_param(visit), score_.each_param(visit);
  }

 private:
  bool has_distances() const { return config_.distances.buckets > 0 && encoder_.num_layers() > 0; }

  BertConfig config_;
  Stages stages_;
  Param tokens_, positions_, kinds_;  // [V, H], [positions, H], [kinds, H]
  Norm embedding_norm_;
  Param distances_;  // [buckets, heads], of all layers
  Cut heads_;        // that this rank computes
  Encoder encoder_;
  Linear transform_;
  Norm transform_norm_;
  Param head_bias_;  // [V]; the head itself is the embedding
  Linear pooler_, score_;
};

}  // namespace weft
