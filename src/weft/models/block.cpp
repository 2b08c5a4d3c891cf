// Block: what its parts are told, and the order of norms and sums.
#include "weft/models/block.h"

#include <cmath>

#include "weft/autograd/recompute.h"

namespace weft {

NormConfig norm_config(const ModelConfig& c) {
  return {.kind = c.norm,
          .eps = c.norm_eps,
          .has_weight = c.norm_weight,
          .has_bias = c.has_norm_bias(),
          .has_offset = c.norm_offset};
}

HyperConnectionConfig streams_config(const ModelConfig& c) {
  return {.hidden = c.hidden,
          .streams = c.residual_streams,
          .mixes = c.mixes_streams(),
          .rule = {.magnitude = c.stream_magnitude,
                   .eps = c.stream_eps,
                   .gate_eps = c.mixes_streams() ? 0 : c.stream_eps,
                   .norm_eps = c.norm_eps,
                   .mix_steps = int(c.stream_mix_steps)},
          .init_std = c.init_std};
}

namespace {

// Projections that write into the residual stream start smaller, so that its variance does not grow with depth.
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
float output_init_std(const ModelConfig& c) { return c.init_std / std::sqrt(2.0f * float(c.layers)); }

AttentionRule attention_rule(const ModelConfig& c, int layer) {
  AttentionRule rule{.scale = c.score_scale(layer), .softcap = c.attention_softcap};
  if (c.is_local(layer)) (c.chunked_window ? rule.chunk : rule.window) = int(c.window);
  return rule;
}

AttentionConfig attention_config(const ModelConfig& c, int layer) {
  return {.hidden = c.hidden,
          .heads = c.heads,
          .kv_heads = c.kv_heads_of(layer),
          .head_dim = c.head_dim_of(layer),
          .value_dim = c.values_dim(layer),
          .rule = attention_rule(c, layer),
          .has_qkv_bias = c.has_qkv_bias(),
          .has_output_bias = c.has_output_bias(),
          .has_head_norm = c.has_qk_norm(layer),
          .has_norm_across = c.qk_norm_across,
          .is_norm_turned = c.qk_norm_turned,
          .has_norm_weight = c.qk_norm_weight,
          .has_norm_offset = c.norm_offset,
          .has_sinks = c.has_sinks(layer),
          .has_gate = c.attention_gate,
          .gates_heads = c.attention_gate_by_head,
          .has_value_norm = c.value_norm,
          .values_are_keys = c.values_are_keys(layer),
          .has_keys = !c.shares_keys(layer),
          .norm_eps = c.norm_eps,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .lora = c.lora};
}

// Of the norms of latent vectors, whatever the others' is: Hugging Face's library has it so in all such models.
constexpr float kLatentNormEps = 1e-6f;

LatentAttentionConfig latent_attention_config(const ModelConfig& c, int layer) {
  return {.hidden = c.hidden,
          .heads = c.heads,
          .head_dim = c.head_dim,
          .rotary_dim = c.rotary_dim,
          .value_dim = c.value_dim,
          .kv_rank = c.kv_rank,
          .query_rank = c.query_rank,
          .rule = attention_rule(c, layer),
          .has_down_bias = c.has_qkv_bias(),
          .has_output_bias = c.has_output_bias(),
          .has_sinks = c.has_sinks(layer),
          .has_gate = c.attention_gate,
          .norm_eps = kLatentNormEps,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .lora = c.lora,
          .index_heads = c.has_index(layer) ? c.index_heads : 0,
          .index_head_dim = c.index_head_dim,
          .index_topk = c.selects_keys() ? c.index_topk : 0,
          .index_norm_eps = c.index_norm_eps};
}

RecurrentScales state_scales(const ModelConfig& c) {
  const std::vector<double>& s = c.state_input_scales;
  if (s.empty()) return {};
  return {.gate = float(s[0]), .value = float(s[1]), .key = float(s[2]), .query = float(s[3]), .decay = float(s[4])};
}

RecurrentConfig state_config(const ModelConfig& c) {
  const bool is_kimi = c.state_rule == StateKind::kimi_delta;
  return {.rule = c.has_delta_rule() ? StateRule::delta : StateRule::selective,
          .hidden = c.hidden,
          .heads = c.state_heads,
          .key_heads = c.state_key_heads,
          .key_dim = c.state_key_dim,
          .value_dim = c.state_value_dim,
          .conv = c.state_conv,
          .has_conv_bias = c.state_conv_bias,
          .decays_by_row = is_kimi,
          .gate_rank = is_kimi ? c.state_value_dim : 0,
          .gate = is_kimi ? Activation::sigmoid : Activation::silu,
          .beta_scale = c.state_beta_scale,
          .has_norm = c.state_norm != StateNorm::none,
          .norms_before_gate = c.has_delta_rule() || c.state_norm == StateNorm::before_gate,
          .norm_eps = c.state_norm_eps > 0 ? c.state_norm_eps : c.norm_eps,
          .scales = state_scales(c),
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .lora = c.lora};
}

GatedConvConfig conv_config(const ModelConfig& c) {
  return {.hidden = c.hidden,
          .conv = c.state_conv,
          .has_conv_bias = c.state_conv_bias,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .lora = c.lora};
}

MlpConfig mlp_config(const ModelConfig& c, int64_t ffn) {
  return {.hidden = c.hidden,
          .ffn = ffn,
          .activation = c.activation,
          .is_gated = c.is_gated,
          .is_xielu = c.is_xielu,
          .has_bias = c.has_mlp_bias(),
          .gate_scale = c.mlp_gate_scale,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .lora = c.lora};
}

MoeConfig moe_config(const ModelConfig& c) {
  const auto norm_if = [&c](bool is_there) { return is_there ? std::optional(norm_config(c)) : std::nullopt; };
  return {.gate = {.rule = {.gate = c.router,
                            .normalises = c.norm_topk,
                            .scale = c.routed_scale,
                            .groups = int(c.expert_groups),
                            .groups_per_token = int(c.groups_per_token),
                            .ranks_logits = c.router_ranks_logits},
                   .experts = c.experts,
                   .per_token = c.experts_per_token,
                   .capacity_factor = c.capacity_factor,
                   .balance_loss = c.aux_loss,
                   .z_loss = c.z_loss},
          .has_router_bias = c.has_router_bias(),
          .has_biases = c.expert_bias,
          .hidden = c.hidden,
          .ffn = c.expert_ffn,
          .latent_dim = c.expert_latent_dim,
          .has_latent_biases = c.has_mlp_bias(),
          .shared = mlp_config(c, c.shared_experts * c.expert_ffn),
          .has_shared_gate = c.shared_gate,
          .weighs_inputs = c.router_weighs_inputs,
          .pre_norms = norm_if(c.experts_beside_dense),
          .post_norm = norm_if(c.experts_beside_dense || c.expert_post_norm),
          .activation = c.clips_experts ? Activation::swiglu_clipped : c.activation,
          .is_gated = c.is_gated,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .lora = c.lora};
}

LayerInputConfig input_config(const ModelConfig& c) {
  return {.hidden = c.hidden,
          .width = c.layer_inputs,
          .activation = c.activation,
          .norm = norm_config(c),
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .base = c.lora.base};
}

}  // namespace

Block::Block(const std::string& name, int layer, const ModelConfig& c, const RopeTables& rope,
             const Partition& partition)
    : kind_(c.block_of(layer)),
      gives_keys_(c.gives_keys(layer)),
      has_norms_behind_(kind_ == BlockKind::post || kind_ == BlockKind::both),
      residual_scale_(c.residual_scale),
      attention_scale_(scale_of_sum(c.attention_out_scale)),
      state_scale_(scale_of_sum(c.state_out_scale)),
      mlp_scale_(scale_of_sum(c.mlp_out_scale)) {
  const auto make_norm = [&](std::optional<Norm>& norm, const char* which) {
    norm.emplace(name + which, partition.tensor.replicated({c.hidden}), norm_config(c));
  };
  const bool has_post = has_norms_behind_ || kind_ == BlockKind::of_sums;
  const bool has_pre = kind_ != BlockKind::post && kind_ != BlockKind::of_sums;
  const bool has_mixer = c.has_mixer(layer), has_mlp = c.has_mlp(layer);
  if (has_pre && has_mixer && (c.first_norm || layer > 0)) make_norm(attention_norm_, ".attention_norm");
  if (has_post) make_norm(attention_post_norm_, ".attention_post_norm");
  if (c.is_recurrent(layer) && c.state_rule == StateKind::convolution)
    conv_.emplace(name + ".state", layer, conv_config(c), partition);
  else if (c.is_recurrent(layer))
    recurrent_.emplace(name + ".state", layer, state_config(c), partition);
  const RopeTable* const turn = c.is_rotated(layer) ? &rope.of(layer) : rope.unrotated();
  if (c.attends(layer) && c.is_latent())
    latent_attention_.emplace(name + ".attention", layer, latent_attention_config(c, layer), turn, partition);
  else if (c.attends(layer))
    attention_.emplace(name + ".attention", int(c.keys_of(layer)), attention_config(c, layer), turn, partition);
  if (has_pre && has_mlp && kind_ != BlockKind::parallel_shared) make_norm(mlp_norm_, ".mlp_norm");
  if (has_post) make_norm(mlp_post_norm_, ".mlp_post_norm");
  if (c.has_experts(layer)) moe_.emplace(name + ".moe", moe_config(c), partition);
  if (c.has_dense(layer)) mlp_.emplace(name + ".mlp", mlp_config(c, c.ffn_of(layer)), partition);
  if (mlp_ && moe_) make_norm(dense_post_norm_, ".mlp.post_norm");
  if (c.layer_inputs > 0) input_.emplace(name + ".input", input_config(c), partition);
  if (c.has_streams()) {
    attention_streams_.emplace(name + ".attention_streams", streams_config(c), partition);
    mlp_streams_.emplace(name + ".mlp_streams", streams_config(c), partition);
  }
  if (!c.layer_scale) return;
  scale_.emplace(name + ".scale", partition.tensor.replicated({1}), Init::ones());
  scale_->trainable = false;
}

// Keys of this layer go to others as they are, so that it does not make them again.
Residual Block::operator()(const Residual& in, const Pass& pass, RecomputePolicy::What recomputed,
                           const WantedRows* wanted, const FromOtherLayers& others) {
  using What = RecomputePolicy::What;
  if (gives_keys_ && recomputed != What::nothing)
    recomputed = recomputed == What::attention ? What::nothing : What::mlp;
  if (in.x.context->tape && recomputed == What::block) {
    const auto& selected = others.selected;
    if (!others.input && !others.keys)
      return {recompute(
          [this, &pass, selected](const Var& x) {
            return (*this)({x}, pass, What::nothing, nullptr, {.selected = selected}).sum();
          },
          in.sum())};
    const auto again = [this, &pass, selected](const Var& x, const Var& input, const Var& keys, const Var& values) {
      KeysAndValues given{keys, values};
      return (*this)({x}, pass, What::nothing, nullptr, {input, keys ? &given : nullptr, selected}).sum();
    };
    const KeysAndValues theirs = others.keys ? *others.keys : KeysAndValues();
    return {recompute(again, in.sum(), others.input, theirs.keys, theirs.values)};
  }
  const Residual parts = both_parts(in, pass, recomputed, wanted, others);
  if (!input_ && !scale_) return parts;
  Var y = parts.sum();
  if (input_) y = (*input_)(y, others.input);
  return {scale_ ? apply(*y.context, ScaleColumnsOp{*scale_}, y) : y};
}

Residual Block::both_parts(const Residual& in, const Pass& pass, RecomputePolicy::What recomputed,
                           const WantedRows* wanted, const FromOtherLayers& others) {
  using What = RecomputePolicy::What;
  const bool has_tape = in.x.context->tape != nullptr;
  const auto given = [wanted](const Var& rows) { return wanted ? wanted->of(rows) : rows; };
  const auto attention = [&](const Var& x) {
    if (!has_tape || recomputed != What::attention) return attend(x, pass, wanted, others);
    const auto& selected = others.selected;
    if (!others.keys)
      return recompute(
          [this, &pass, selected](const Var& again) { return attend(again, pass, nullptr, {.selected = selected}); },
          x);
    const auto again = [this, &pass, selected](const Var& normed, const Var& keys, const Var& values) {
      KeysAndValues theirs{keys, values};
      return attend(normed, pass, nullptr, {.keys = &theirs, .selected = selected});
    };
    return recompute(again, x, others.keys->keys, others.keys->values);
  };
  const auto mlp = [&](const Var& x) {
    if (!has_tape || recomputed != What::mlp) return feed_forward(x, wanted ? wanted->pass() : pass);
    return recompute([this, &pass](const Var& again) { return feed_forward(again, pass); }, x);
  };
  const auto behind = [this](Norm& norm, const Var& y) { return scaled(norm(y), residual_scale_); };
  switch (kind_) {
    case BlockKind::pre: {
      if (attention_streams_) {
        const auto [streams, row, gates, mix] = attention_streams_->read(in.sum());
        const Var sum =
            write_streams(given(streams), attention((*attention_norm_)(row)), given(gates), mix ? given(mix) : mix);
        const auto [sums, row_of_sums, gates_of_sums, mix_of_sums] = mlp_streams_->read(sum);
        return {write_streams(sums, mlp((*mlp_norm_)(row_of_sums)), gates_of_sums, mix_of_sums)};
      }
      const auto [residual, normed] = attention_norm_ ? attention_norm_->branch(in) : std::array{in.sum(), in.sum()};
      const auto [sum, normed_sum] = mlp_norm_->add(given(residual), attention(normed));
      return {sum, mlp(normed_sum)};
    }
    case BlockKind::post: {
      const Var x = in.sum(), sum = given(x) + behind(*attention_post_norm_, attention(x));
      return {sum, behind(*mlp_post_norm_, mlp(sum))};
    }
    case BlockKind::both: {
      const auto [residual, normed] = attention_norm_->branch(in);
      if (mlp_ && moe_) {
        const Var sum = given(residual) + behind(*attention_post_norm_, attention(normed));
        return {sum, behind(*mlp_post_norm_, mlp(sum))};
      }
      const auto [sum, normed_sum] =
          mlp_norm_->add(given(residual), behind(*attention_post_norm_, attention(normed)));
      return {sum, behind(*mlp_post_norm_, mlp(normed_sum))};
    }
    case BlockKind::parallel: {
      const auto [residual, normed] = attention_norm_->branch(in);
      const Var rows = given(residual), a = attention(normed), m = mlp((*mlp_norm_)(rows));
      return {rows, a + m};
    }
    case BlockKind::parallel_shared: {
      const auto [residual, normed] = attention_norm_->branch(in);
      return {given(residual), attention(normed) + mlp(given(normed))};
    }
    case BlockKind::of_sums: {
      const Var x = in.sum(), sum = (*attention_post_norm_)(given(x) + attention(x));
      return {(*mlp_post_norm_)(sum + mlp(sum))};
    }
    case BlockKind::single: {
      Norm& norm = attention_norm_ ? *attention_norm_ : *mlp_norm_;
      const auto [residual, normed] = norm.branch(in);
      return {given(residual), attention_norm_ ? attention(normed) : mlp(given(normed))};
    }
  }
  return in;
}

}  // namespace weft
