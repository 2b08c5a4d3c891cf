// ModelConfig: the shape of a decoder, as data; a family is a set of defaults.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/kernels/kernels.h"
#include "weft/nn/lora_config.h"

namespace weft {

enum class PositionKind : uint8_t { rope, learned };

// Where the norms of a block stand, with a for its attention and m for its feed-forward part:
//   pre              x1 = x + a(norm(x));              y = x1 + m(norm(x1))
//   post             x1 = x + norm(a(x));              y = x1 + norm(m(x1))
//   both             x1 = x + norm(a(norm(x)));        y = x1 + norm(m(norm(x1)))
//   parallel         y = x + a(norm(x)) + m(norm'(x))
//   parallel_shared  y = x + a(norm(x)) + m(norm(x))
//   of_sums          x1 = norm(x + a(x));              y = norm(x1 + m(x1))
//   single           y = x + a(norm(x)), or in mlp_layers y = x + m(norm(x))
enum class BlockKind : uint8_t { pre, post, both, parallel, parallel_shared, of_sums, single };

// What layers with states in place of keys and values remember: matrices, by one of the rules of
// kernels/recurrence_args.h, of which kimi_delta is the delta rule where each row of a state forgets at a rate of its
// own; or the last tokens alone, of a gated convolution (nn/gated_conv.h).
enum class StateKind : uint8_t { delta, selective, convolution, kimi_delta };

// Where selective states are normalised: behind their gates, before these, or nowhere.
enum class StateNorm : uint8_t { gated, before_gate, none };

// How rotary angles are stretched so that a model reads longer texts than it was first trained on. Sources: linear,
// Chen et al., 2023; dynamic, "NTK-aware" scaling by the length at hand; llama3, Llama 3.1, 2024; yarn, Peng et al.,
// 2023; longrope, Ding et al., 2024; proportional, Gemma 4, 2026, of which a share of the pairs turns, the fastest.
struct RopeScaling {
  enum class Kind : uint8_t { none, linear, dynamic, llama3, yarn, longrope, proportional };
  Kind kind = Kind::none;
  double factor = 1;
  int64_t original_context = 0;                      // the context before
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool is_ramp_exact = false;                        // yarn: its ramp does not begin and end with a whole pair
  double attention_factor = 0;                       // of cos and sin; 0: what the kind implies
  double mscale = 0, mscale_all = 0;                 // yarn, as DeepSeek-V2 has it
  double turned_share = 1;                           // proportional: of the pairs; the others stand still
  // Queries of position p are multiplied by 1 + query_beta ln(1 + floor(p / original_context)), so that a longer text
  // does not flatten what they attend to (Meta, "Llama 4", 2025).
  double query_beta = 0;
  std::vector<double> short_factors, long_factors;  // longrope: of each pair, up to and beyond original_context
  // What cos and sin are multiplied by, in a model with this context; and likewise the scores.
  double rotation_factor(int64_t context) const;
  double score_factor() const;
  double query_factor(int64_t position) const;
  // Whether a token's angles depend on how long its text is, beyond original_context.
  bool depends_on_length() const {
    return kind == Kind::dynamic || (kind == Kind::longrope && short_factors != long_factors);
  }
  bool operator==(const RopeScaling&) const = default;
};

// What is forgotten in the forward pass and computed again in the backward pass.
struct RecomputePolicy {
  enum class What : uint8_t { nothing, attention, mlp, block };
  What what = What::nothing;
  int every = 1;  // of every n-th block
  What of(int64_t block) const { return block % every == 0 ? what : What::nothing; }
};

struct ModelConfig {
  std::string family = "llama";
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;       // of dense layers
  int64_t vocab = 0;
  int64_t context = 0;  // the longest sequence; 0: the recipe's seq_len
  bool tie_embeddings = false;
  bool embedding_norm = false;  // what the embedding gives is normalised, as parts of layers read it
  bool first_norm = true;       // false: attention of the first layer, which is `pre`, reads its input as it is
  bool head_bias = false;       // of logits; `bias` does not mean it
  // Above 0: in place of logits of tokens, the model makes so many scores of a text of what its last token is left
  // at, by a head of its own, which is not tied and has neither a bias, a scale nor a cap. A reward has one.
  int64_t labels = 0;
  // Every token sees all of its text: the model makes vectors or scores of texts and writes none. Local layers see
  // window / 2 tokens to both sides.
  bool bidirectional = false;
  bool has_head = true;  // false, of such a model: there are no logits of tokens
  bool bias = false;     // in all projections and LayerNorms; or in some of them:
  bool qkv_bias = false, output_bias = false, mlp_bias = false, norm_bias = false;
  bool expert_bias = false;  // in those of experts and in their router
  float dropout = 0;
  BlockKind block = BlockKind::pre;
  // Of block single: those whose one part is the feed-forward one; complete: every second, where none are named.
  std::vector<int64_t> mlp_layers;
  NormKind norm = NormKind::rms;
  float norm_eps = 1e-5f;
  bool norm_weight = true;   // false: norms have no weights at all
  bool norm_offset = false;  // norms multiply by 1 + weight
  Activation activation = Activation::silu;
  bool is_gated = true;   // swiglu, geglu
  bool is_xielu = false;  // the activation is xIELU (Kernels::xielu), in place of `activation`, which is identity
  PositionKind position = PositionKind::rope;
  double rope_theta = 10000;
  int64_t rotary_dim = 0;                 // elements of a head that turn, its first; 0: all
  int64_t unrotated_every = 0;            // every n-th layer turns none and sees no positions; 0: all layers turn
  std::vector<int64_t> unrotated_layers;  // those, where they are not every n-th
  // In these, queries of position p are multiplied by 1 + beta ln(1 + floor((p + 1) / interval)); beta 0: they are
  // not.
  double unrotated_query_beta = 0;
  int64_t unrotated_query_interval = 8192;
  RopeScaling rope_scaling;
  bool qk_norm = false;                 // of every head of queries and keys
  bool qk_norm_across = false;          // over all heads together
  bool qk_norm_turned = false;          // qk_norm comes behind rotary positions, and only where there are such
  bool qk_norm_weight = true;           // false: qk_norm has no weights
  bool value_norm = false;              // of every head of values, without weights
  bool attention_gate = false;          // its result is multiplied by the sigmoid of a projection of its input
  bool attention_gate_by_head = false;  // which has a number to each head, in place of one to each element
  bool attention_sinks = false;         // a learned score to a head that takes part in softmax and stands for no key
  int64_t value_dim = 0;                // of a head of values; 0: head_dim
  float attention_scale = 0;            // of scores; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0;          // scores become cap * tanh(score / cap); 0: they stay
  float logit_softcap = 0;              // likewise the logits
  float embedding_scale = 1;            // 0: the root of hidden
  // Of what both parts of a layer add to the residual stream, behind norms that stand there; of what one of them
  // gives, before such a norm.
  float residual_scale = 1;
  float attention_out_scale = 1, state_out_scale = 1, mlp_out_scale = 1;
  float mlp_gate_scale = 1;  // of gates of feed-forward parts, before their activation
  float logit_scale = 1;     // of logits, before their cap
  bool layer_scale = false;  // what a layer gives is multiplied by a number of its own, which is not trained
  // Hyper-connections (kernels/streams_args.h): so many residual streams, which begin alike, of blocks that are
  // `pre`.
  int64_t residual_streams = 1;
  int64_t stream_mix_steps = 0;  // Sinkhorn's, of the matrix that mixes them; 0: they are not mixed
  float stream_magnitude = 2, stream_eps = 1e-6f;
  float init_std = 0.02f;

  // Local layers see the `window` last tokens only; or, of chunks of so many tokens that a text is cut into, no token
  // of another chunk.
  int64_t window = 0;  // 0: no layer is local
  bool chunked_window = false;
  int64_t first_local_layer = 0;       // those before it are global
  int64_t global_every = 0;            // and so is every n-th; 0: none
  std::vector<int64_t> global_layers;  // those that are global, where they are not these
  double local_rope_theta = 0;         // of local layers, without scaling; 0: as the others
  // Of global layers, where others are local; 0: as theirs.
  int64_t global_head_dim = 0, global_kv_heads = 0;
  bool global_values_are_keys = false;  // no projection makes values: they are keys before norms and positions
  bool global_sinks = true;             // attention_sinks are theirs, too

  // The last layers, so many, attend to the keys and values of the last layer before them that is local, or not, as
  // they are (Brandon et al., "Reducing Transformer Key-Value Cache Size with Cross-Layer Attention", 2024).
  int64_t shared_kv_layers = 0;
  int64_t shared_kv_ffn = 0;  // in place of ffn in these; 0: as ffn
  int64_t layer_inputs = 0;   // numbers that each layer is given of a token (nn/layer_inputs.h); 0: none

  // Latent attention (DeepSeek-AI, "DeepSeek-V2", 2024): keys and values are made from `kv_rank` numbers a token.
  // head_dim then counts a query's turned elements (rotary_dim) and the others.
  int64_t kv_rank = 0;     // 0: ordinary attention
  int64_t query_rank = 0;  // 0: queries are made from the residual stream at once
  // Sparse attention over latents (DeepSeek-AI, "DeepSeek-V3.2", 2025): a row sees the index_topk keys that an index
  // of small heads scores highest (nn/indexer.h); 0 heads: all.
  int64_t index_heads = 0, index_head_dim = 128, index_topk = 2048;
  // Layers with an index, the first among them; the others see what the last of these before them selected. Empty:
  // all have one.
  std::vector<int64_t> index_layers;
  float index_norm_eps = 1e-6f;  // of the norm of its keys

  // States in place of keys and values: heads that remember in a matrix each, [state_key_dim, state_value_dim],
  // behind convolutions over the last tokens; or convolutions alone, which have no heads.
  int64_t attention_every = 0;            // every n-th layer attends, the others do this; 0: all attend
  std::vector<int64_t> attention_layers;  // those that attend, where they are not every n-th
  // Layers with states, which are all where attention_every is 0, attend as well: what both make of the same input is
  // added up.
  bool state_beside_attention = false;
  bool state_pre_norm = false;  // the blocks of layers with states are `pre`, whatever those of the others are
  StateKind state_rule = StateKind::delta;
  int64_t state_heads = 0;                             // of values; 0: as heads
  int64_t state_key_heads = 0;                         // of queries and keys; 0: as state_heads
  int64_t state_key_dim = 128, state_value_dim = 128;  // of a head
  int64_t state_conv = 4;                              // tokens that a convolution sees
  bool state_conv_bias = false;
  float state_beta_scale = 1;  // of how much the delta rule learns of a token; 2: states may turn what they know
  StateNorm state_norm = StateNorm::gated;  // of selective states
  float state_norm_eps = 0;                 // 0: norm_eps
  // Of projections to gates, values, keys, queries and steps, in this order; empty: all 1.
  std::vector<double> state_input_scales;

  // Mixture of experts; see parallel/expert/gate.h for what the losses are.
  int64_t experts = 0;  // 0: every layer is dense
  int64_t experts_per_token = 2;
  int64_t shared_experts = 0;  // see all tokens
  bool clips_experts = false;  // experts that are chosen compute swiglu_clipped, whatever the others do
  bool shared_gate = false;    // what they give is multiplied by the sigmoid of a product with the token
  int64_t expert_ffn = 0;      // of one expert; 0: ffn
  // Experts that are chosen read and write so many numbers of a token, which two projections make of the residual
  // stream and add to it (NVIDIA, "Nemotron 3", 2025: LatentMoE); 0: all of it. Routers and shared experts see it
  // all.
  int64_t expert_latent_dim = 0;
  int64_t first_dense_layers = 0;      // the others have experts
  std::vector<int64_t> expert_layers;  // those with experts, where they are not all behind the first ones
  // A layer with experts has its dense part beside them. Each has norms of its own, before and behind it, as the
  // router has before it, and an expert's weight is multiplied by a learned factor. Source: Gemma 4, 2026.
  bool experts_beside_dense = false;
  bool expert_post_norm = false;  // of what experts give, shared ones among them
  RouterGate router = RouterGate::softmax;
  // An expert reads a token times its weight, in place of giving its result times that (Meta, "Llama 4", 2025).
  bool router_weighs_inputs = false;
  bool router_bias = false;          // added to scores where experts are chosen; also there with router_bias_rate
  bool router_ranks_logits = false;  // experts are chosen by their logits, with the bias, in place of scores
  int64_t expert_groups = 1;         // a token's experts come from groups_per_token of them: the best ones
  int64_t groups_per_token = 1;
  bool norm_topk = true;  // the weights of a token's experts add up to routed_scale
  float routed_scale = 1;
  float capacity_factor = 0;  // in training; 0: no token is dropped
  float aux_loss = 0, z_loss = 0;
  float router_bias_rate = 0;  // how fast training balances by the bias; 0: it does not

  // Parts behind the last layer that predict a token further on (models/mtp.h), 0 or 1. A saved model has its part
  // only where it was opened with it (pretrained/model_source.h).
  int64_t mtp_layers = 0;
  double mtp_loss = 0.1;  // in training, the weight of its loss beside that of the next token

  LoraConfig lora;  // adapters beside the projections; where there are some, they alone are trained

  bool scores_texts() const { return labels > 0; }
  bool writes_texts() const { return !scores_texts() && !bidirectional; }
  int64_t num_outputs() const { return scores_texts() ? labels : vocab; }  // of the head
  bool has_mlp(int64_t layer) const { return block != BlockKind::single || stands_in(mlp_layers, layer); }
  bool has_mixer(int64_t layer) const { return block != BlockKind::single || !stands_in(mlp_layers, layer); }
  bool has_experts(int64_t layer) const {
    if (experts == 0 || !has_mlp(layer)) return false;
    return expert_layers.empty() ? layer >= first_dense_layers : stands_in(expert_layers, layer);
  }
  bool has_dense_layers() const { return experts == 0 || first_dense_layers > 0 || !expert_layers.empty(); }
  int64_t expert_dim() const { return expert_latent_dim ? expert_latent_dim : hidden; }  // what an expert reads
  bool has_router_bias() const { return router_bias || router_bias_rate > 0; }
  bool has_qk_norm(int64_t layer) const {
    return qk_norm && (!qk_norm_turned || position == PositionKind::learned || is_rotated(layer));
  }
  double unrotated_query_factor(int64_t at) const;  // a position
  bool is_rotated(int64_t layer) const {
    if (position != PositionKind::rope) return false;
    if (!unrotated_layers.empty()) return !stands_in(unrotated_layers, layer);
    return unrotated_every == 0 || (layer + 1) % unrotated_every != 0;
  }
  bool has_unrotated() const { return unrotated_every > 0 || !unrotated_layers.empty(); }
  int64_t turned_dim() const { return rotary_dim ? rotary_dim : head_dim; }  // of local layers, where there are some
  int64_t global_turned_dim() const { return rotary_dim || !global_head_dim ? turned_dim() : global_head_dim; }
  bool has_streams() const { return residual_streams > 1; }
  bool mixes_streams() const { return has_streams() && stream_mix_steps > 0; }
  int64_t residual_width() const { return residual_streams * hidden; }  // of what goes from layer to layer
  bool is_latent() const { return kv_rank > 0; }
  bool selects_keys() const { return index_heads > 0; }
  bool has_index(int64_t layer) const {
    return selects_keys() && (index_layers.empty() || stands_in(index_layers, layer));
  }
  bool has_states() const { return attention_every > 0; }
  bool has_delta_rule() const { return state_rule == StateKind::delta || state_rule == StateKind::kimi_delta; }
  bool is_recurrent(int64_t layer) const {
    if (!has_states() || !has_mixer(layer)) return false;
    return attention_layers.empty() ? (layer + 1) % attention_every != 0 : !stands_in(attention_layers, layer);
  }
  bool attends(int64_t layer) const { return has_mixer(layer) && (state_beside_attention || !is_recurrent(layer)); }
  BlockKind block_of(int64_t layer) const { return state_pre_norm && is_recurrent(layer) ? BlockKind::pre : block; }
  int64_t num_attending() const;  // layers
  int64_t num_recurrent() const;
  float score_scale(int64_t layer = 0) const;  // complete
  bool is_local(int64_t layer) const {
    if (window <= 0) return false;
    if (!global_layers.empty()) return !stands_in(global_layers, layer);
    return layer >= first_local_layer && (global_every == 0 || (layer + 1) % global_every != 0);
  }
  bool is_global(int64_t layer) const { return window > 0 && !is_local(layer); }
  int64_t head_dim_of(int64_t layer) const {
    return global_head_dim && is_global(layer) ? global_head_dim : head_dim;
  }
  int64_t values_dim(int64_t layer = 0) const { return value_dim ? value_dim : head_dim_of(layer); }
  int64_t gate_dim(int64_t layer) const {  // numbers that gate what a head gives
    return !attention_gate ? 0 : attention_gate_by_head ? 1 : values_dim(layer);
  }
  int64_t kv_heads_of(int64_t layer) const {
    return global_kv_heads && is_global(layer) ? global_kv_heads : kv_heads;
  }
  bool has_sinks(int64_t layer) const { return attention_sinks && (global_sinks || !is_global(layer)); }
  bool values_are_keys(int64_t layer) const { return global_values_are_keys && is_global(layer); }
  bool has_dense(int64_t layer) const { return has_mlp(layer) && (experts_beside_dense || !has_experts(layer)); }
  bool shares_keys(int64_t layer) const { return layer < layers && layer >= layers - shared_kv_layers; }
  // The layer to whose keys and values this one attends: itself, or an earlier one; -1 where there is none.
  int64_t keys_of(int64_t layer) const;
  // What a layer has of others is not sent from stage to stage of a pipeline.
  bool stands_on_one_stage() const { return shared_kv_layers > 0 || layer_inputs > 0 || !index_layers.empty(); }
  // Whether others attend to its keys.
  bool gives_keys(int64_t layer) const;
  int64_t ffn_of(int64_t layer) const { return shared_kv_ffn && shares_keys(layer) ? shared_kv_ffn : ffn; }
  bool has_qkv_bias() const { return bias || qkv_bias; }
  bool has_output_bias() const { return bias || output_bias; }
  bool has_mlp_bias() const { return bias || mlp_bias; }
  bool has_norm_bias() const { return (bias || norm_bias) && norm == NormKind::layer && norm_weight; }
  bool operator==(const ModelConfig&) const = default;
  int64_t num_params() const;  // without adapters
  int64_t num_adapter_params() const;
  // Model FLOPs of one training token, forward and backward, attention over `seq_len` tokens counted once where it is
  // causal; a table look-up costs none. Beside adapters, weights have no gradient. Source: Narayanan et al., 2021,
  // without recomputation.
  double flops_per_token(int64_t seq_len) const;
  // FLOPs of reading a prompt in so many steps, each of which asks for the logits of its last row: the head and, but
  // for keys and values, the last layer are computed of these rows alone, and so are layers that share keys.
  double prompt_flops(int64_t tokens, int64_t steps) const;
  // Of flops_per_token, about what a layer's share is, beside those of the other layers: without adapters.
  double layer_flops(int64_t layer, int64_t seq_len) const;
  // Of flops_per_token, those of the part that predicts further on: its layer, and the head once more.
  double mtp_flops_per_token(int64_t seq_len) const;
  // The configuration of that part's layer, which attends to all tokens and has no adapters.
  ModelConfig mtp_block() const;
  // What recomputation adds to flops_per_token.
  double recomputed_flops_per_token(int64_t seq_len, const RecomputePolicy& policy) const;

 private:
  static bool stands_in(const std::vector<int64_t>& ascending, int64_t layer) {
    return std::ranges::binary_search(ascending, layer);
  }
};

// Of attention that reaches so many tokens to both sides.
constexpr int64_t window_of(int64_t reach) { return 2 * reach + 1; }
constexpr int64_t reach_of(int64_t window) { return window / 2; }

// Fills what is 0 with what the rest implies; throws UsageError naming the key that makes the shape impossible.
void complete(ModelConfig& config);

// The defaults of a family ("gpt2", "llama"); throws UsageError naming the nearest family.
ModelConfig family_defaults(const std::string& family);
// A published model's shape ("gpt2-124m", "llama-1b"); throws UsageError naming the nearest preset.
ModelConfig preset(const std::string& name);
std::vector<std::string> family_names();
std::vector<std::string> preset_names();

// "swiglu", "gelu", ...: throws UsageError naming the key and the choices.
void set_activation(ModelConfig& config, const std::string& name);

}  // namespace weft
