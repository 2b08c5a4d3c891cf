// Gemma, from 2 on with local layers and caps; Gemma 4 with wider heads in global ones, and experts beside the dense
// part.
#include <algorithm>
#include <cmath>

#include "weft/pretrained/gguf_families/gguf_families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace gguf_gemma {
namespace {

std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({gguf_offset_norms(), gguf_halved_names(c)});
  return rows;
}

void rms_and_embedding_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  if (!f.is_reading()) return;
  c.embedding_scale = float(std::sqrt(double(c.hidden)));
  if (f.from().has_head) throw Error("{}: {} models have no output.weight", f.from().source, f.from().architecture);
}

// By the number of layers llama.cpp tells the largest model, which divides scores otherwise.
void local_fields(GgufFields& f, ModelConfig& c, int64_t layers_of_largest, int64_t every) {
  rms_and_embedding_fields(f, c);
  gguf_window_fields(f, c, 4096, every, true);
  const bool is_largest = c.layers == layers_of_largest && c.heads > 0;
  const float usual = float(1 / std::sqrt(double(is_largest ? c.hidden / c.heads : c.head_dim)));
  if (!f.is_reading() && std::abs(c.score_scale() - usual) > 1e-6f * usual) {
    f.set("attention.scale", double(c.score_scale()));
    f.note(fmt::format("llama.cpp multiplies scores by {} in such a {} model, where this one has {}", usual,
                       f.from().architecture, c.score_scale()));
  }
  if (f.is_reading()) f.number("attention.scale", c.attention_scale, usual);
}

void gemma2_fields(GgufFields& f, ModelConfig& c) {
  local_fields(f, c, 46, 2);
  if (!f.is_reading() && !(c.attention_softcap > 0 && c.logit_softcap > 0))
    f.refuse("attn_logit_softcapping", "it must be above 0");
  f.number("attn_logit_softcapping", c.attention_softcap, 50);
  f.number("final_logit_softcapping", c.logit_softcap, 30);
}

void gemma3_fields(GgufFields& f, ModelConfig& c) {
  local_fields(f, c, 62, 6);
  f.number("rope.freq_base_swa", c.local_rope_theta, 10000);
  f.number("final_logit_softcapping", c.logit_softcap, 0);
}

// EmbeddingGemma: half of the window lies to each side.
void gemma_embedding_fields(GgufFields& f, ModelConfig& c) {
  if (!f.is_reading() && !c.bidirectional) f.refuse("attention.causal", "it must be false");
  if (!f.is_reading() && c.window > 0) c.window = 2 * reach_of(c.window);
  gemma3_fields(f, c);
  if (!f.is_reading()) return;
  c.bidirectional = true;
  if (c.window > 0) c.window = window_of(c.window / 2);
}

// Of all pairs of a head the first turn: the others' angles are divided by a number without end, nearly.
constexpr float kStands = 1e30f;
void turned_share_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kFactors = "rope_freqs";
  RopeScaling& s = c.rope_scaling;
  const int64_t pairs = c.global_turned_dim() / 2;
  if (!f.is_reading()) {
    if (s.kind != RopeScaling::Kind::proportional || s.factor != 1)
      f.refuse("rope.scaling.type", "rotary positions must turn a share of the pairs");
    std::vector<float>& factors = f.to().factors[kFactors];
    factors.assign(size_t(pairs), kStands);
    std::fill_n(factors.begin(), std::ptrdiff_t(s.turned_share * double(pairs)), 1.0f);
    return;
  }
  const auto found = f.from().factors.find(kFactors);
  if (found == f.from().factors.end() || int64_t(found->second.size()) != pairs)
    throw Error("{}: the tensor {}.weight must have {} numbers, one for each pair", f.from().source, kFactors, pairs);
  const std::vector<float>& factors = found->second;
  const auto turned = std::ranges::find(factors, kStands) - factors.begin();
  for (size_t i = 0; i < factors.size(); ++i)
    if (factors[i] != (int64_t(i) < turned ? 1.0f : kStands))
      throw Error("{}: {}.weight: of the pairs the first must turn, and the others stand still", f.from().source,
                  kFactors);
  s = {.kind = RopeScaling::Kind::proportional, .original_context = c.context};
  s.turned_share = double(turned) / double(pairs);
}

// A number for all layers, or a list of one for each, of which there are two: of the layers that is_other names, and
// of the rest.
void two_sizes_field(GgufFields& f, const char* key, int64_t layers, int64_t& usual, int64_t& other, auto is_other) {
  const auto size_of = [&](int64_t layer) -> int64_t& { return is_other(layer) ? other : usual; };
  if (!f.is_reading()) {
    if (other == 0) return f.set(key, usual);
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < layers; ++i) sizes.push_back(size_of(i));
    return f.set(key, std::move(sizes));
  }
  const auto told = f.from().keys.find(key);
  const auto* const list = told == f.from().keys.end() ? nullptr : std::get_if<std::vector<int64_t>>(&told->second);
  if (!list) return f.size(key, usual);
  if (int64_t(list->size()) != layers) f.refuse(key, "it must tell every layer");
  for (int64_t i = 0; i < layers; ++i) size_of(i) = (*list)[size_t(i)];
  for (int64_t i = 0; i < layers; ++i)
    if (size_of(i) != (*list)[size_t(i)]) f.refuse(key, "layers of one kind must have the same number");
}

// The shape of heads is that of layers that see the whole text; local ones have keys of their own.
void gemma4_head_fields(GgufFields& f, ModelConfig& c) {
  const bool is_reading = f.is_reading();
  int64_t dim = c.global_head_dim ? c.global_head_dim : c.head_dim, value_dim = dim, local_value_dim = c.head_dim;
  int64_t turned = c.global_turned_dim(), local_turned = c.turned_dim();
  f.size("attention.key_length", dim);
  f.size("attention.value_length", value_dim, dim);
  f.size("attention.key_length_swa", c.head_dim, dim);
  f.size("attention.value_length_swa", local_value_dim, c.head_dim);
  f.size("rope.dimension_count", turned, dim);
  f.size("rope.dimension_count_swa", local_turned, c.head_dim);
  if (value_dim != dim || local_value_dim != c.head_dim)
    f.refuse("attention.value_length", "it must be that of keys");
  if (turned != dim || local_turned != c.head_dim)
    f.refuse("rope.dimension_count", "pairs must span the whole of a head, as rope_freqs says which of them turn");
  if (is_reading) c.global_head_dim = dim;
}

void gemma4_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char *kWindow = "attention.sliding_window", *kPattern = "attention.sliding_window_pattern";
  f.size("block_count", c.layers);
  f.size("context_length", c.context);
  f.size("embedding_length", c.hidden);
  f.size("attention.shared_kv_layers", c.shared_kv_layers, 0);
  f.size("embedding_length_per_layer_input", c.layer_inputs, 0);
  two_sizes_field(f, "feed_forward_length", c.layers, c.ffn, c.shared_kv_ffn,
                  [&](int64_t i) { return c.shares_keys(i); });
  f.size("attention.head_count", c.heads);
  f.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  f.size(kWindow, c.window);
  if (c.window == 0) f.refuse(kWindow, "some layers must be local");
  if (const auto* const flags = f.is_reading() ? f.flags(kPattern) : nullptr) {
    if (int64_t(flags->size()) != c.layers) f.refuse(kPattern, "it must tell every layer");
    set_local_layers(c, *flags);
  } else if (f.is_reading()) {
    f.refuse(kPattern, "it must say of each layer whether it is local");
  } else {
    std::vector<bool> is_local;
    for (int64_t i = 0; i < c.layers; ++i) is_local.push_back(c.is_local(i));
    f.set(kPattern, std::move(is_local));
  }
  two_sizes_field(f, "attention.head_count_kv", c.layers, c.kv_heads, c.global_kv_heads,
                  [&](int64_t i) { return !c.is_local(i); });
  gemma4_head_fields(f, c);
  f.number("rope.freq_base", c.rope_theta, 1e6);
  f.number("rope.freq_base_swa", c.local_rope_theta, 10000);
  turned_share_fields(f, c);
  f.number("final_logit_softcapping", c.logit_softcap, 0);
  gguf_expert_fields(f, c);
  if (!f.is_reading()) return;
  c.global_values_are_keys = f.from().lacks_values, c.layer_scale = f.from().has_layer_scale;
  c.experts_beside_dense = c.experts > 0;
  c.embedding_scale = float(std::sqrt(double(c.hidden)));
}

constexpr NameRow kGemma4[] = {
    {"layers.#.scale", "blk.#.layer_output_scale.weight"},
    {"layer_inputs", "per_layer_token_embd"},
    {"layer_inputs.projection", "per_layer_model_proj"},
    {"layer_inputs.norm", "per_layer_proj_norm"},
    {"layers.#.input.gate", "blk.#.inp_gate"},
    {"layers.#.input.projection", "blk.#.proj"},
    {"layers.#.input.norm", "blk.#.post_norm"},
    {"layers.#.mlp.post_norm", "blk.#.post_ffw_norm_1"},
    {"layers.#.moe.norm", "blk.#.pre_ffw_norm_2"},
    {"layers.#.moe.post_norm", "blk.#.post_ffw_norm_2"},
    {"layers.#.moe.router_norm.weight", "blk.#.ffn_gate_inp.scale"},
    {"layers.#.moe.router.factors", "blk.#.ffn_down_exps.scale"},
    {"layers.#.moe.experts.gate", "blk.#.ffn_gate_up_exps", {.part = Part::gate}},
    {"layers.#.moe.experts.up", "blk.#.ffn_gate_up_exps", {.part = Part::up}},
};
std::span<const NameRow> gemma4_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kGemma4), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_gemma

std::vector<GgufFamily> gguf_gemma_families() {
  using namespace gguf_gemma;

  return {{"gemma", "gemma", rms_and_embedding_fields, names},
          {"gemma2", "gemma2", gemma2_fields, names},
          {"gemma3", "gemma3", gemma3_fields, names},
          {"gemma-embedding", "gemma3", gemma_embedding_fields, names},
          {"gemma4", "gemma4", gemma4_fields, gemma4_names}};
}

}  // namespace weft
