// Encoder: a stack of layers over tokens that are there already: what the towers of texts and images are built of.
#pragma once
#include <memory>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/models/block.h"
#include "weft/parallel/stages.h"

namespace weft {

// Whether a token sees those behind it is the pass's: its spans say so.
class Encoder {
 public:
  // Of the configuration counts what a layer is, and how it turns by positions; learned ones are the caller's. Each
  // stage has some of the layers.
  // head_parameters: of what the last stage computes for every token behind them.
  Encoder(const std::string& name, const ModelConfig& config, const Partition& partition, const Stages& stages,
          int64_t head_parameters);
  Encoder(const Encoder&) = delete;

  // What comes of the layers, on the last stage; an empty Var on the others. begin: on the first stage, what they
  // read. Local layers have a pass of their own (Pass::local).
  Var operator()(Context& context, const Pass& pass, FunctionRef<Var()> begin);

  int64_t num_layers() const { return int64_t(blocks_.size()); }  // of this stage

  void each_param(auto&& visit) {
    for (const auto& block : blocks_) block->each_param(visit);
  }

 private:
  ModelConfig config_;
  Stages stages_;
  LayerRange mine_;
  RopeTables rope_;
  bool has_tables_ = false;
  std::vector<std::unique_ptr<Block>> blocks_;
};

// The configuration of a layer with LayerNorms; complete.
struct EncoderShape {
  int64_t layers = 0, hidden = 0, heads = 0, ffn = 0;
  Activation activation = Activation::gelu;
  bool is_gated = false;
  bool has_biases = true, has_norm_biases = true;  // in projections, and in norms
  float norm_eps = 1e-5f;
  BlockKind block = BlockKind::pre;
  bool first_norm = true;  // see ModelConfig
  // Of rotary positions; 0: there are none.
  double rope_theta = 0, local_rope_theta = 0;
  int64_t positions = 1;
  // Tokens of local layers see so many before them and as many behind them; 0: no layer is local.
  int64_t reach = 0;
  std::vector<int64_t> global_layers;  // the others
};
ModelConfig encoder_config(const EncoderShape& shape);

// All of `num_tokens` rows as one sequence. It outlives the passes made of it.
class WholeSequence {
 public:
  WholeSequence(int64_t num_tokens, bool causal)
      : num_tokens_(num_tokens),
        span_{.q_end = int32_t(num_tokens), .k_end = int32_t(num_tokens), .causal = causal} {}
  WholeSequence(const WholeSequence&) = delete;
  Pass pass() const { return {.num_tokens = num_tokens_, .attention = {.spans = &span_, .num_spans = 1}}; }

 private:
  int64_t num_tokens_;
  AttentionSpan span_;
};

}  // namespace weft
