// Bert: texts to what becomes of their tokens, to the scores of what may stand at each of their places, or to scores
// of the texts. Forward only. Sources: Devlin et al., "BERT", 2019; Liu et al., "RoBERTa", 2019; Conneau et al.,
// "XLM-R", 2020; Sanh et al., "DistilBERT", 2019; Song et al., "MPNet", 2020; Nussbaum et al., "Nomic Embed", 2024;
// Warner et al., "Smarter, Better, Faster, Longer" (ModernBERT), 2024.
#pragma once
#include "weft/autograd/ops/activation.h"
#include "weft/models/encoder.h"
#include "weft/models/text_encoder.h"
#include "weft/nn/distance_attention.h"

namespace weft {

struct BertConfig {
  EncoderShape encoder;  // norms of sums, or one more norm behind the last layer
  int64_t vocab = 0;
  int64_t first_position = 0;                  // of encoder.positions; those before it are no text's
  int64_t kinds = 2;                           // of text, such as question and answer; 0: the model tells none apart
  DistanceBuckets distances = {.buckets = 0};  // what scores of attention know of tokens' distances; 0: nothing
  bool has_head = true;                        // for masked tokens
  Activation transform = Activation::gelu;     // of its first part, ...
  bool has_transform_bias = true;              // ... which is a projection and a norm
  int64_t labels = 0;                          // scores of a text; 0: it has none
  bool scores_mean = false;                    // of the mean of its tokens' hidden states; else the first token's
  bool has_pooler = true;                      // between these and the scores; false: the first part of that head
  Activation pooler = Activation::tanh;
  int64_t context() const { return encoder.positions - first_position; }
  bool has_table() const { return encoder.rope_theta == 0; }  // of positions
  bool has_final_norm() const { return encoder.block != BlockKind::of_sums; }
  bool has_transform() const { return has_head || (labels > 0 && !has_pooler); }
};

class Bert final : public TextEncoder {
 public:
  // The layers are cut; what is around them is whole on every rank of the first or the last stage.
  explicit Bert(const BertConfig& config, const Partition& partition = {}, const Stages& stages = {});
  const BertConfig& config() const { return config_; }
  Sizes sizes() const override { return {config_.vocab, config_.context(), config_.encoder.hidden, config_.labels}; }
  TextRows no_texts() const override { return {config_.first_position, config_.kinds > 1, config_.encoder.reach}; }

  Var hidden(Context& context, const TextRows& texts) override;
  // Of what hidden() gave, [T, V], on the last stage; UsageError without such a head.
  Tensor logits(const Var& hidden);
  Tensor scores(const Var& hidden, const TextRows& texts) override;

  // Those of this stage.
  void each_param(auto&& visit) {
    const bool has_head = stages_.is_last() && config_.has_head;
    if (stages_.is_first() || has_head) visit(tokens_);
    if (stages_.is_first()) {
      if (config_.has_table()) visit(positions_);
      if (config_.kinds > 0) visit(kinds_);
      embedding_norm_.each_param(visit);
    }
    if (has_distances()) visit(distances_);
    encoder_.each_param(visit);
    if (!stages_.is_last()) return;
    if (config_.has_final_norm()) final_norm_.each_param(visit);
    if (config_.has_transform()) transform_.each_param(visit), transform_norm_.each_param(visit);
    if (has_head) visit(head_bias_);
    if (config_.labels == 0) return;
    if (config_.has_pooler) pooler_.each_param(visit);
    score_.each_param(visit);
  }

 private:
  Var transformed(const Var& rows) { return transform_norm_(activation(transform_(rows), config_.transform)); }
  // Of each text, what its scores are made of, [texts, H].
  Var pooled(const Var& hidden, const TextRows& texts) const;
  bool has_distances() const { return config_.distances.buckets > 0 && encoder_.num_layers() > 0; }

  BertConfig config_;
  Stages stages_;
  Param tokens_, positions_, kinds_;  // [V, H], [positions, H], [kinds, H]
  Norm embedding_norm_;
  Param distances_;  // [buckets, heads], of all layers
  Cut heads_;        // that this rank computes
  Encoder encoder_;
  Norm final_norm_;
  Linear transform_;
  Norm transform_norm_;
  Param head_bias_;  // [V]; the head itself is the embedding
  Linear pooler_, score_;
};

}  // namespace weft
