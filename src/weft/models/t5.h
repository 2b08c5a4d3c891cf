// T5: an encoder that reads one text and a decoder that writes another. Forward only.
// Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/models/model_config.h"
#include "weft/nn/distance_attention.h"
#include "weft/nn/mlp.h"
#include "weft/nn/norm.h"
#include "weft/parallel/stages.h"

namespace weft {

struct T5Config {
  int64_t hidden = 0, heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  int64_t encoder_layers = 0, decoder_layers = 0;
  int64_t buckets = 32, max_distance = 128;
  Activation activation = Activation::relu;
  bool is_gated = false;
  float norm_eps = 1e-6f;
  int32_t first_token = 0, end_token = 1;  // of what is written
  bool tie_embeddings = true;  // the head is the embedding, and its input is divided by the root of the width
};

class T5 {
 public:
  // Heads and feed-forward parts are cut; the embedding, the norms and the head are whole on every rank that needs
  // them. The stages share the encoder's layers and then the decoder's.
  explicit T5(const T5Config& config, const Partition& partition = {}, const Stages& stages = {});
  T5(const T5&) = delete;
  ~T5();
  const T5Config& config() const { return config_; }
  const Stages& stages() const { return stages_; }

  // What the encoder makes of a text, [S, H], on every stage with layers of the decoder; on those before, what they
  // got done of it.
  Var encode(Context& context, std::span<const int32_t> ids);

  // A text that is written, seeing the memory that encode() gave. The model and the context outlive it.
  class Writing {
   public:
    // capacity: tokens of the text at most
    Writing(T5& model, Context& context, const Var& memory, int64_t capacity);
    // Logits [T, V] of each of the tokens, which follow those of earlier calls, on the last stage; empty on the
    // others.
    Tensor logits(std::span<const int32_t> ids);
    int64_t length() const { return length_; }

   private:
    struct Past {
      DistanceAttention::KeysValues own;     // [capacity, N, D] of this rank's heads, the first length() filled
      DistanceAttention::KeysValues memory;  // [S, N, D]
    };
    T5& model_;
    Context& context_;
    Tensor distances_;
    std::vector<Past> layers_;
    int64_t capacity_, length_ = 0;
  };
  // Logits [T, V] of a whole text, on the last stage; empty on the others.
  Tensor logits(Context& context, std::span<const int32_t> ids, const Var& memory) {
    return Writing(*this, context, memory, int64_t(ids.size())).logits(ids);
  }

  void each_param(FunctionRef<void(Param&)> visit);  // of this stage

 private:
  struct Layer;
  // Whether this stage has a layer, counted from the encoder's first to the decoder's last.
  bool has(int64_t layer) const { return layer >= mine_.begin && layer < mine_.end; }
  Var embed(Context& context, std::span<const int32_t> ids);
  Tensor bias_of(Context& context, Param& buckets, bool is_two_sided) const;

  T5Config config_;
  Stages stages_;
  LayerRange mine_;                              // counted from the encoder's first layer to the decoder's last
  Cut heads_;                                    // that this rank computes
  Param embedding_;                              // [V, H]
  Param encoder_distances_, decoder_distances_;  // [buckets, N], of all layers
  std::vector<std::unique_ptr<Layer>> encoder_, decoder_;  // of this stage
  Norm encoder_norm_, decoder_norm_;
  std::optional<Param> head_;  // [V, H]
};

}  // namespace weft
