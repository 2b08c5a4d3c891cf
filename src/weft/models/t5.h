// T5: an encoder that reads one text and a decoder that writes another. Forward only.
// Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/models/model_config.h"
#include "weft/nn/distance_attention.h"
#include "weft/nn/mlp.h"
#include "weft/nn/norm.h"

namespace weft {

struct T5Config {
  int64_t hidden = 0, heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  int64_t encoder_layers = 0, decoder_layers = 0;
  int64_t buckets = 32, max_distance = 128;
  Activation activation = Activation::relu;
  bool is_gated = false;
  float norm_eps = 1e-6f;
  bool tie_embeddings = true;  // the head is the embedding, and its input is divided by the root of the width
};

class T5 {
 public:
  explicit T5(const T5Config& config);
  T5(const T5&) = delete;
  ~T5();
  const T5Config& config() const { return config_; }

  // What the encoder makes of a text, [S, H].
  Var encode(Context& context, std::span<const int32_t> ids);
  // Logits [T, V] of each token of the text that is written, seeing the memory that encode() gave.
  Tensor logits(Context& context, std::span<const int32_t> ids, const Var& memory);

  std::vector<Param*> params();

 private:
  struct Layer;
  Var embed(Context& context, std::span<const int32_t> ids);
  Tensor bias_of(Context& context, Param& buckets, bool is_two_sided) const;

  T5Config config_;
  Param embedding_;                          // [V, H]
  Param encoder_distances_, decoder_distances_;  // [buckets, N], of all layers
  std::vector<std::unique_ptr<Layer>> encoder_, decoder_;
  Norm encoder_norm_, decoder_norm_;
  std::optional<Param> head_;  // [V, H]
};

}  // namespace weft
