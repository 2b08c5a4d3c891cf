// complete: what a shape leaves open, and what it must hold.
#include "weft/models/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "weft/models/model_fields.h"

namespace weft {
namespace {

void require_positive(const char* key, int64_t value) {
  if (value <= 0) throw UsageError("model.{} = {}: write a number of at least 1", key, value);
  constexpr int64_t kMost = int64_t(1) << 24;
  if (value > kMost) throw UsageError("model.{} = {}: at most {} is supported", key, value, kMost);
}

template <class T>
void require_between(const char* key, T value, T least, T most) {
  if (!(value >= least && value <= most))
    throw UsageError("model.{} = {}: write a number from {} to {}", key, value, least, most);
}

void require_layers(const char* key, const std::vector<int64_t>& numbers, int64_t layers) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] <= (i > 0 ? numbers[i - 1] : -1) || numbers[i] >= layers)
      throw UsageError("model.{}: write numbers from 0 to {} in ascending order", key, layers - 1);
}

void complete_expert_layers(ModelConfig& c) {
  std::vector<int64_t>& named = c.expert_layers;
  if (named.empty()) return;
  require_layers("expert_layers", named, c.layers);
  if (c.first_dense_layers > 0)
    throw UsageError("model.expert_layers names all layers with experts: write model.first_dense_layers = 0");
  if (c.block == BlockKind::single)
    throw UsageError(
        "model.expert_layers: of model.block = \"single\" every feed-forward layer behind the first ones "
        "has experts: write model.first_dense_layers");
  if (named.back() != c.layers - 1 || named.back() - named.front() + 1 != int64_t(named.size())) return;
  c.first_dense_layers = named.front();
  named.clear();
}

void complete_experts(ModelConfig& c) {
  if (c.experts == 0) return;
  require_positive("experts", c.experts);
  require_positive("experts_per_token", c.experts_per_token);
  if (c.experts_per_token > std::min<int64_t>(c.experts, kMostExpertsPerToken))
    throw UsageError("model.experts_per_token = {}: there are {} experts, and at most {} serve a token",
                     c.experts_per_token, c.experts, kMostExpertsPerToken);
  if (c.expert_ffn == 0) c.expert_ffn = c.ffn;
  require_positive("expert_ffn", c.expert_ffn);
  if (c.expert_latent_dim != 0) require_positive("expert_latent_dim", c.expert_latent_dim);
  const auto not_negative = [](const char* key, double value) {
    if (!(value >= 0)) throw UsageError("model.{} = {}: write a number of at least 0", key, value);
  };
  not_negative("shared_experts", double(c.shared_experts));
  if (c.experts_beside_dense && (c.block != BlockKind::both || c.shared_experts > 0 || c.expert_bias))
    throw UsageError(
        "model.experts_beside_dense: such a layer has norms on both sides, and neither shared experts nor biases of "
        "experts: write model.block = \"both\", model.shared_experts = 0 and model.expert_bias = false");
  if (c.clips_experts && !c.is_gated)
    throw UsageError("model.clips_experts: what is clipped is gated: write model.activation = \"swiglu\", or false");
  if (c.experts_beside_dense && c.expert_post_norm)
    throw UsageError("model.expert_post_norm: experts beside a dense part have that norm without it: write false");
  if (c.shared_gate && c.shared_experts == 0)
    throw UsageError("model.shared_gate weighs what shared experts give: write model.shared_experts, or false");
  not_negative("first_dense_layers", double(c.first_dense_layers));
  complete_expert_layers(c);
  not_negative("capacity_factor", double(c.capacity_factor));
  not_negative("aux_loss", double(c.aux_loss));
  not_negative("z_loss", double(c.z_loss));
  not_negative("router_bias_rate", double(c.router_bias_rate));
  if (!(c.routed_scale > 0)) throw UsageError("model.routed_scale = {}: write a number above 0", c.routed_scale);
  require_positive("expert_groups", c.expert_groups);
  require_positive("groups_per_token", c.groups_per_token);
  if (c.experts % c.expert_groups != 0)
    throw UsageError("model.expert_groups = {} does not divide model.experts = {}: write a divisor", c.expert_groups,
                     c.experts);
  if (c.groups_per_token > c.expert_groups || c.experts / c.expert_groups * c.groups_per_token < c.experts_per_token)
    throw UsageError("model.groups_per_token = {}: of {} groups of {} experts each, {} experts must be chosen",
                     c.groups_per_token, c.expert_groups, c.experts / c.expert_groups, c.experts_per_token);
}

void complete_rope(ModelConfig& c) {
  if (c.position != PositionKind::rope) return;
  if (c.rotary_dim == c.head_dim && c.global_head_dim == 0) c.rotary_dim = 0;
  if (c.turned_dim() % 2 != 0 || c.turned_dim() < 2 || c.turned_dim() > c.head_dim || c.global_turned_dim() % 2 != 0)
    throw UsageError(
        "model.rotary_dim = {}: rotary positions turn pairs of the {} elements of a head: write an even number up to "
        "that, or model.position = \"learned\"",
        c.turned_dim(), c.head_dim);
  if (c.unrotated_every < 0)
    throw UsageError("model.unrotated_every = {}: write a number of at least 0", c.unrotated_every);
  require_layers("unrotated_layers", c.unrotated_layers, c.layers);
  if (c.unrotated_every > 0 && !c.unrotated_layers.empty())
    throw UsageError("model.unrotated_layers names all layers that do not turn: write model.unrotated_every = 0");
  if (!(c.unrotated_query_beta >= 0))
    throw UsageError("model.unrotated_query_beta = {}: write a number of at least 0", c.unrotated_query_beta);
  require_positive("unrotated_query_interval", c.unrotated_query_interval);
  if (!(c.rope_theta >= 1)) throw UsageError("model.rope_theta = {}: write a number of at least 1", c.rope_theta);
  RopeScaling& s = c.rope_scaling;
  const bool is_stretched = s.kind != RopeScaling::Kind::none;
  if (!(s.query_beta >= 0) || (s.query_beta > 0 && !is_stretched))
    throw UsageError("model.rope_query_beta = {}: write a number of at least 0, and 0 without model.rope_scaling",
                     s.query_beta);
  if (!is_stretched) return;
  if (!(s.factor >= 1)) throw UsageError("model.rope_factor = {}: write a number of at least 1", s.factor);
  if (s.original_context == 0) s.original_context = c.context;
  require_positive("rope_original_context", s.original_context);
  if (s.kind == RopeScaling::Kind::llama3 && !(s.high_freq_factor >= s.low_freq_factor && s.low_freq_factor > 0))
    throw UsageError(
        "model.rope_high_freq_factor = {} must be at least model.rope_low_freq_factor = {}, and both above 0",
        s.high_freq_factor, s.low_freq_factor);
  if (s.kind == RopeScaling::Kind::yarn && !(s.beta_fast > s.beta_slow && s.beta_slow > 0))
    throw UsageError("model.rope_beta_fast = {} must be above model.rope_beta_slow = {}", s.beta_fast, s.beta_slow);
  if (s.kind == RopeScaling::Kind::proportional && !(s.turned_share > 0 && s.turned_share <= 1))
    throw UsageError("model.rope_turned_share = {}: write a number above 0 and at most 1", s.turned_share);
  if (s.kind != RopeScaling::Kind::longrope) return;
  for (const auto* factors : {&s.short_factors, &s.long_factors}) {
    if (int64_t(factors->size()) != c.global_turned_dim() / 2)
      throw UsageError(
          "model.rope_short_factors and model.rope_long_factors must have {} numbers each, one for each pair",
          c.global_turned_dim() / 2);
    for (const double f : *factors)
      if (!(f > 0)) throw UsageError("model.rope_short_factors and model.rope_long_factors: {} is not above 0", f);
  }
}

// Of a model without matrices as states.
void forget_rules(ModelConfig& c) {
  const ModelConfig none;
  c.state_beta_scale = none.state_beta_scale, c.state_norm = none.state_norm;
  c.state_norm_eps = none.state_norm_eps, c.state_input_scales.clear();
}

void complete_rules(ModelConfig& c) {
  constexpr size_t kNumScales = 5;
  if (c.has_delta_rule())
    c.state_norm = StateNorm::gated;
  else
    c.state_beta_scale = 1;
  if (!(c.state_beta_scale > 0 && c.state_beta_scale <= 2))
    throw UsageError("model.state_beta_scale = {}: write a number above 0 and at most 2", c.state_beta_scale);
  if (c.state_norm_eps == c.norm_eps || c.state_norm == StateNorm::none) c.state_norm_eps = 0;
  require_between<float>("state_norm_eps", c.state_norm_eps, 0, 1);
  std::vector<double>& scales = c.state_input_scales;
  if (std::ranges::all_of(scales, [](double x) { return x == 1; })) scales.clear();
  if (scales.empty()) return;
  if (scales.size() != kNumScales || c.state_rule != StateKind::selective)
    throw UsageError(
        "model.state_input_scales: write {} numbers, of gates, values, keys, queries and steps, beside "
        "model.state_rule = \"mamba2\"",
        kNumScales);
  for (const double x : scales)
    if (!(x > 0 && std::isfinite(x))) throw UsageError("model.state_input_scales: {} is not above 0", x);
}

void complete_states(ModelConfig& c) {
  if (c.attention_every < 0)
    throw UsageError("model.attention_every = {}: write a number of at least 0", c.attention_every);
  if (c.state_beside_attention && c.attention_every == 0) c.attention_every = c.layers + 1;
  if (!c.has_states()) {
    if (!c.attention_layers.empty())
      throw UsageError(
          "model.attention_layers: write model.attention_every above 0, so that other layers have states");
    const ModelConfig none;
    c.state_rule = none.state_rule, c.state_heads = none.state_heads, c.state_key_heads = none.state_key_heads;
    c.state_key_dim = none.state_key_dim, c.state_value_dim = none.state_value_dim;
    c.state_conv = none.state_conv, c.state_conv_bias = none.state_conv_bias;
    c.state_beside_attention = c.state_pre_norm = false, c.state_out_scale = none.state_out_scale;
    return forget_rules(c);
  }
  require_between<int64_t>("state_conv", c.state_conv, 1, kMostConvWidth);
  require_layers("attention_layers", c.attention_layers, c.layers);
  if (c.num_recurrent() == 0) {
    c.attention_every = 0, c.attention_layers.clear();
    return complete_states(c);
  }
  if (c.block == BlockKind::pre) c.state_pre_norm = false;
  if (c.state_pre_norm && c.block != BlockKind::post && c.block != BlockKind::both)
    throw UsageError(
        "model.state_pre_norm: layers that attend have norms behind their parts: write model.block = "
        "\"post\" or \"both\", or false");
  if (c.state_rule == StateKind::convolution) {
    const ModelConfig none;
    c.state_heads = none.state_heads, c.state_key_heads = none.state_key_heads;
    c.state_key_dim = none.state_key_dim, c.state_value_dim = none.state_value_dim;
    return forget_rules(c);
  }
  complete_rules(c);
  if (c.state_heads == 0) c.state_heads = c.heads;
  require_positive("state_heads", c.state_heads);
  if (c.state_key_heads == 0) c.state_key_heads = c.state_heads;
  require_positive("state_key_heads", c.state_key_heads);
  if (c.state_heads % c.state_key_heads != 0)
    throw UsageError("model.state_heads = {} is not divisible by model.state_key_heads = {}: keys are shared evenly",
                     c.state_heads, c.state_key_heads);
  require_between<int64_t>("state_key_dim", c.state_key_dim, 1, kMostKeyDim);
  require_positive("state_value_dim", c.state_value_dim);
}

void complete_single(ModelConfig& c) {
  if (c.block != BlockKind::single) {
    if (!c.mlp_layers.empty())
      throw UsageError("model.mlp_layers: write model.block = \"single\", of whose layers each has one part");
    return;
  }
  if (c.mlp_layers.empty())
    for (int64_t i = 1; i < c.layers; i += 2) c.mlp_layers.push_back(i);
  require_layers("mlp_layers", c.mlp_layers, c.layers);
  for (const int64_t layer : c.mlp_layers)
    if (std::ranges::binary_search(c.attention_layers, layer))
      throw UsageError("model.mlp_layers: layer {} is one of model.attention_layers: name it in one of the two",
                       layer);
  if (c.mtp_layers > 0)
    throw UsageError("model.mtp_layers = {}: its layer has two parts, but model.block = \"single\": write 0",
                     c.mtp_layers);
}

void complete_global_layers(ModelConfig& c) {
  if (c.window == 0) c.chunked_window = false, c.global_layers.clear();
  require_layers("global_layers", c.global_layers, c.layers);
  if (!c.global_layers.empty() && (c.first_local_layer > 0 || c.global_every > 0))
    throw UsageError(
        "model.global_layers names all global layers: write model.first_local_layer = 0 and model.global_every = 0");
  if (c.window == 0 || c.global_head_dim == c.head_dim) c.global_head_dim = 0;
  if (c.window == 0 || c.global_kv_heads == c.kv_heads) c.global_kv_heads = 0;
  if (c.window == 0) c.global_values_are_keys = false;
  if (c.window == 0 || !c.attention_sinks) c.global_sinks = true;
  if (c.global_head_dim != 0) require_positive("global_head_dim", c.global_head_dim);
  if (c.global_kv_heads != 0) require_positive("global_kv_heads", c.global_kv_heads);
  if (c.global_kv_heads != 0 && c.heads % c.global_kv_heads != 0)
    throw UsageError("model.heads = {} is not divisible by model.global_kv_heads = {}", c.heads, c.global_kv_heads);
  if (c.global_values_are_keys && !(c.qk_norm && !c.qk_norm_turned && c.value_norm))
    throw UsageError(
        "model.global_values_are_keys: keys and values then differ by their norms: write model.qk_norm = true, "
        "model.qk_norm_turned = false and model.value_norm = true");
  const bool are_particular = c.global_head_dim != 0 || c.global_kv_heads != 0 || c.global_values_are_keys;
  if (are_particular && (c.is_latent() || c.has_states() || c.mtp_layers > 0))
    throw UsageError(
        "model.global_head_dim, global_kv_heads and global_values_are_keys belong to models that attend in every "
        "layer, not by latent attention, and predict no token further on: leave them out");
  if (c.global_head_dim != 0 && c.rotary_dim > c.global_head_dim)
    throw UsageError("model.rotary_dim = {}: write at most model.global_head_dim = {}", c.rotary_dim,
                     c.global_head_dim);
  if (c.global_head_dim != 0 && c.local_rope_theta == 0) c.local_rope_theta = c.rope_theta;
}

void complete_shared_keys(ModelConfig& c) {
  if (c.shared_kv_layers < 0 || c.shared_kv_layers >= c.layers)
    throw UsageError("model.shared_kv_layers = {}: write a number from 0 to {}, so that some layer has keys",
                     c.shared_kv_layers, c.layers - 1);
  if (c.shared_kv_layers == 0 || c.shared_kv_ffn == c.ffn) c.shared_kv_ffn = 0;
  if (c.shared_kv_ffn != 0) require_positive("shared_kv_ffn", c.shared_kv_ffn);
  if (c.layer_inputs != 0) require_positive("layer_inputs", c.layer_inputs);
  if (c.shared_kv_layers == 0 && c.layer_inputs == 0) return;
  if (c.is_latent() || c.has_states() || c.mtp_layers > 0 || c.block == BlockKind::single)
    throw UsageError(
        "model.shared_kv_layers and layer_inputs belong to models of two parts to a layer that attend in every one, "
        "not by latent attention, and predict no token further on: write 0");
  if (c.shared_kv_layers > 0 && c.qk_norm_turned)
    throw UsageError("model.qk_norm_turned: keys of other layers are normed before they turn: write false");
  for (int64_t i = c.layers - c.shared_kv_layers; i < c.layers; ++i)
    if (c.keys_of(i) < 0)
      throw UsageError(
          "model.shared_kv_layers = {}: no layer before them is {} as layer {} is: write fewer, or other local "
          "layers",
          c.shared_kv_layers, c.is_local(i) ? "local" : "global", i);
}

void complete_index(ModelConfig& c) {
  if (c.index_heads == 0) return;
  require_layers("index_layers", c.index_layers, c.layers);
  if (int64_t(c.index_layers.size()) == c.layers) c.index_layers.clear();
  if (!c.index_layers.empty() && c.index_layers[0] != 0)
    throw UsageError("model.index_layers: the first layer has none before it: name 0, too");
  if (!c.is_latent() || c.query_rank == 0)
    throw UsageError(
        "model.index_heads = {}: keys are selected by the latents of queries: write model.kv_rank and query_rank, or "
        "0",
        c.index_heads);
  require_positive("index_heads", c.index_heads);
  require_positive("index_head_dim", c.index_head_dim), require_positive("index_topk", c.index_topk);
  require_between<float>("index_norm_eps", c.index_norm_eps, 0, 1);
  if (c.index_head_dim < c.rotary_dim)
    throw UsageError("model.index_head_dim = {}: {} elements of it turn: write at least that (model.rotary_dim)",
                     c.index_head_dim, c.rotary_dim);
}

void complete_streams(const ModelConfig& c) {
  require_between<int64_t>("residual_streams", c.residual_streams, 1, kMostStreams);
  if (!c.has_streams()) return;
  if (c.block != BlockKind::pre || c.layer_inputs > 0 || c.layer_scale || c.experts_beside_dense || c.mtp_layers > 0)
    throw UsageError(
        "model.residual_streams = {}: several streams have layers of block = \"pre\", without layer_inputs, "
        "layer_scale, experts_beside_dense and mtp_layers: leave these out, or write 1",
        c.residual_streams);
  require_between<int64_t>("stream_mix_steps", c.stream_mix_steps, 0, kMostMixSteps);
  if (!(c.stream_magnitude > 0 && std::isfinite(c.stream_magnitude)))
    throw UsageError("model.stream_magnitude = {}: write a number above 0", c.stream_magnitude);
  if (c.mixes_streams() && c.stream_eps == 0)
    throw UsageError("model.stream_eps = 0: sums by which streams are mixed are divided by: write a number above 0");
  require_between<float>("stream_eps", c.stream_eps, 0, 1);
}

void complete_attention(ModelConfig& c) {
  if (c.qk_norm && c.qk_norm_across)
    throw UsageError(
        "model.qk_norm and model.qk_norm_across: norms are of each head or of all: write one of the two");
  if (!c.attention_gate) c.attention_gate_by_head = false;
  complete_global_layers(c);
  complete_rope(c);
  complete_states(c);
  complete_shared_keys(c);
  complete_index(c);
  if (!c.is_latent()) {
    if (c.value_dim == c.head_dim && c.global_head_dim == 0) c.value_dim = 0;
    if (c.value_dim == 0) return;
    require_positive("value_dim", c.value_dim);
    if (c.global_head_dim != 0 || c.global_values_are_keys)
      throw UsageError("model.value_dim = {}: values of global layers are as wide as their keys: write 0",
                       c.value_dim);
    return;
  }
  require_positive("kv_rank", c.kv_rank);
  if (c.value_norm) throw UsageError("model.value_norm: latent attention has none: write false");
  if (c.attention_gate_by_head)
    throw UsageError("model.attention_gate_by_head: gates of latent attention are of elements: write false");
  c.value_dim = c.values_dim();
  require_positive("value_dim", c.value_dim);
  if (c.kv_heads != c.heads)
    throw UsageError("model.kv_heads = {}: latent attention has keys for each of the {} heads", c.kv_heads, c.heads);
  if (c.position != PositionKind::rope || c.rotary_dim == 0)
    throw UsageError(
        "model.rotary_dim = {}: by latent attention some of the {} elements of a head turn, or would (model."
        "unrotated_every): write fewer, and model.position = \"rope\"",
        c.turned_dim(), c.head_dim);
}

// Those that the model has. What a model without experts, or with nothing beside them, says of the one kind of
// feed-forward part it says of the other too, so that the same adapters have one name.
LoraTargets targets_of(const ModelConfig& c) {
  using enum LoraTarget;
  constexpr LoraTarget kKinds[][2] = {{gate, expert_gate}, {up, expert_up}, {down, expert_down}};
  const bool has_dense = c.has_dense_layers() || c.shared_experts > 0 || c.experts_beside_dense;
  LoraTargets targets = c.lora.targets;
  if (!c.has_states()) targets &= LoraTargets(~kStateTargets);
  if (!c.has_delta_rule()) targets &= LoraTargets(~bit_of(state_beta));
  if (c.state_rule == StateKind::convolution) targets &= LoraTargets(~(bit_of(state_gate) | bit_of(state_decay)));
  if (!c.shared_gate) targets &= LoraTargets(~bit_of(shared_gate));
  if (c.experts == 0) targets &= LoraTargets(~bit_of(router));
  if (c.experts == 0 || c.expert_latent_dim == 0) targets &= LoraTargets(~(bit_of(latent_down) | bit_of(latent_up)));
  for (const auto& [dense, expert] : kKinds) {
    const bool is_there = dense != gate || c.is_gated, has_both = has_dense && c.experts > 0;
    const LoraTargets both = bit_of(dense) | bit_of(expert), named = bit_of(has_dense ? dense : expert);
    const bool is_named = is_there && (targets & named) != 0;
    if (is_there && has_both) continue;
    targets &= LoraTargets(~both);
    if (is_named) targets |= both;
  }
  return targets;
}

void complete_adapters(ModelConfig& c) {
  if (c.lora.rank == 0) return;
  if (c.lora.rank < 0 || c.lora.rank > kMostLoraRank)
    throw UsageError("lora.rank = {}: write a number from 1 to {}", c.lora.rank, kMostLoraRank);
  if (!(c.lora.alpha > 0)) throw UsageError("lora.alpha = {}: write a number above 0", c.lora.alpha);
  if (!(c.lora.dropout >= 0 && c.lora.dropout < 1))
    throw UsageError("lora.dropout = {}: write a probability from 0 to below 1", c.lora.dropout);
  c.lora.targets = targets_of(c);
  if (c.lora.targets == 0)
    throw UsageError("lora.targets names no projection that the model has: write [\"q\", \"v\"]");
  const bool adapts_experts = c.experts > 0 && (c.lora.targets & kExpertTargets) != 0;
  if (adapts_experts && c.lora.dropout > 0)
    throw UsageError(
        "lora.dropout = {}: adapters of experts have none: write 0, or targets without them, such as q and dense_up",
        c.lora.dropout);
  if (adapts_experts && c.lora.is_dora)
    throw UsageError(
        "lora.dora: adapters of experts train no lengths of rows: leave it out, or write targets without them, such "
        "as q and dense_up");
  if (c.lora.has(LoraTarget::router) && c.lora.is_dora && c.expert_bias)
    throw UsageError(
        "lora.dora: a router with biases trains no lengths of rows: leave \"router\" out of lora.targets");
  const bool adapts_inputs =
      c.lora.has(LoraTarget::query) || c.lora.has(LoraTarget::key) || c.lora.has(LoraTarget::value);
  if (c.is_latent() && adapts_inputs)
    throw UsageError("lora.targets: latent attention has adapters beside its output only; write [\"o\"]");
}

void complete_mtp(const ModelConfig& c) {
  if (c.mtp_layers == 0) return;
  if (c.mtp_layers != 1) throw UsageError("model.mtp_layers = {}: write 0 or 1", c.mtp_layers);
  if (c.position != PositionKind::rope)
    throw UsageError("model.mtp_layers = 1: that part has rotary positions: write model.position = \"rope\", or 0");
  if (!(c.mtp_loss > 0 && std::isfinite(c.mtp_loss)))
    throw UsageError("model.mtp_loss = {}: write a number above 0, or model.mtp_layers = 0", c.mtp_loss);
}

// Texts are cut at their ends alone, and every layer sees to both sides.
void complete_bidirectional(ModelConfig& c) {
  if (!c.has_head && (!c.bidirectional || c.scores_texts()))
    throw UsageError("model.has_head = false: models that make vectors of texts alone may lack it: write true");
  if (!c.has_head) c.tie_embeddings = c.head_bias = false;
  if (!c.bidirectional) return;
  if (c.has_states() || c.is_latent() || c.chunked_window || c.mtp_layers > 0)
    throw UsageError(
        "model.bidirectional: layers with states or latents, chunks of tokens (model.chunked_window) and "
        "model.mtp_layers go from each token to the next: leave these out, or write false");
  if (c.rope_scaling.depends_on_length())
    throw UsageError(
        "model.bidirectional: texts of one step have lengths of their own, by which positions cannot be stretched: "
        "write another model.rope_scaling, or false");
  if (c.window > 0 && c.window % 2 == 0)
    throw UsageError(
        "model.window = {}: with model.bidirectional a token sees as many tokens before it as behind it: write an "
        "odd "
        "number",
        c.window);
}

}  // namespace

void complete(ModelConfig& c) {
  require_positive("layers", c.layers);
  // Each has objects and names of its own.
  constexpr int64_t kMostLayers = 10000, kMostExperts = int64_t(1) << 20;
  if (c.layers > kMostLayers) throw UsageError("model.layers = {}: at most {} are supported", c.layers, kMostLayers);
  if (c.experts > kMostExperts / c.layers)
    throw UsageError("model.experts = {} in each of {} layers: at most {} are supported together", c.experts,
                     c.layers, kMostExperts);
  require_positive("hidden", c.hidden);
  require_positive("heads", c.heads);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  require_positive("kv_heads", c.kv_heads);
  if (c.head_dim == 0) {
    if (c.hidden % c.heads != 0)
      throw UsageError("model.hidden = {} is not divisible by model.heads = {}: change one, or write model.head_dim",
                       c.hidden, c.heads);
    c.head_dim = c.hidden / c.heads;
  }
  require_positive("head_dim", c.head_dim);
  if (c.heads % c.kv_heads != 0)
    throw UsageError(
        "model.heads = {} is not divisible by model.kv_heads = {}: every key/value head serves the same "
        "number of query heads",
        c.heads, c.kv_heads);
  if (c.ffn == 0) c.ffn = 4 * c.hidden;
  require_positive("ffn", c.ffn);
  require_positive("vocab", c.vocab);
  require_positive("context", c.context);
  if (c.dropout < 0 || c.dropout >= 1)
    throw UsageError("model.dropout = {}: write a probability from 0 to below 1", c.dropout);
  require_between<float>("norm_eps", c.norm_eps, 0, 1);
  const auto above_0 = [](const char* key, float value) {
    if (!(value > 0 && std::isfinite(value))) throw UsageError("model.{} = {}: write a number above 0", key, value);
  };
  if (c.embedding_scale == 0) c.embedding_scale = float(std::sqrt(double(c.hidden)));
  above_0("embedding_scale", c.embedding_scale);
  above_0("residual_scale", c.residual_scale);
  above_0("logit_scale", c.logit_scale);
  above_0("attention_out_scale", c.attention_out_scale);
  above_0("state_out_scale", c.state_out_scale);
  above_0("mlp_out_scale", c.mlp_out_scale);
  above_0("mlp_gate_scale", c.mlp_gate_scale);
  if (c.mlp_gate_scale != 1 && (!c.is_gated || c.experts > 0))
    throw UsageError(
        "model.mlp_gate_scale = {}: gates of dense feed-forward parts have it: write 1 beside experts, "
        "or model.activation = \"swiglu\"",
        c.mlp_gate_scale);
  if (c.is_xielu && (c.experts > 0 || c.layer_inputs > 0))
    throw UsageError("model.activation = \"xielu\": experts and layer_inputs have another: write 0 of them");
  if (c.scores_texts()) {
    c.tie_embeddings = c.head_bias = false;
    c.logit_scale = 1, c.logit_softcap = 0, c.mtp_layers = 0;
  }
  complete_attention(c);
  complete_single(c);
  complete_experts(c);
  complete_adapters(c);
  complete_mtp(c);
  complete_streams(c);
  complete_bidirectional(c);
  if (c.num_params() == INT64_MAX)
    throw UsageError("the model's sizes are too large together: 64 bits cannot count its parameters");
}

}  // namespace weft
