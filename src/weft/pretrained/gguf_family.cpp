// GGUF architectures: their keys as llama.cpp reads them, and tables of names.
#include "weft/pretrained/gguf_family.h"

#include <cmath>

#include "weft/models/rope_tables.h"
#include "weft/pretrained/config_essence.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace {

using Kind = RopeScaling::Kind;
constexpr Layout kPaired{.is_paired = true}, kPlusOne{.added = 1};
constexpr Layout kQuery{.part = Part::query}, kKey{.part = Part::key}, kValue{.part = Part::value};

// llama.cpp turns neighbours of a head where Hugging Face turns its halves, so its files of Llama and OLMo hold
// queries and keys pair by pair; those of later architectures do not. A table names more than a model may have; what
// a file of the architecture can hold is what its keys say.
constexpr NameRow kPairedNames[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_q", kPaired},
    {"layers.#.attention.key", "blk.#.attn_k", kPaired},
    {"layers.#.attention.value", "blk.#.attn_v"},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"layers.#.moe.router", "blk.#.ffn_gate_inp"},
    {"layers.#.moe.experts.gate", "blk.#.ffn_gate_exps"},
    {"layers.#.moe.experts.up", "blk.#.ffn_up_exps"},
    {"layers.#.moe.experts.down", "blk.#.ffn_down_exps"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};
constexpr NameRow kHalvedNames[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_q"},
    {"layers.#.attention.key", "blk.#.attn_k"},
    {"layers.#.attention.value", "blk.#.attn_v"},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.attention.query_norm", "blk.#.attn_q_norm"},
    {"layers.#.attention.key_norm", "blk.#.attn_k_norm"},
    {"layers.#.attention_post_norm", "blk.#.post_attention_norm"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"layers.#.mlp_post_norm", "blk.#.post_ffw_norm"},
    {"layers.#.moe.router", "blk.#.ffn_gate_inp"},
    {"layers.#.moe.experts.gate", "blk.#.ffn_gate_exps"},
    {"layers.#.moe.experts.up", "blk.#.ffn_up_exps"},
    {"layers.#.moe.experts.down", "blk.#.ffn_down_exps"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};
// llama.cpp multiplies by the weights of norms as they are, Hugging Face's library by one more.
constexpr NameRow kGemmaNames[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm", kPlusOne},
    {"layers.#.attention.query", "blk.#.attn_q"},
    {"layers.#.attention.key", "blk.#.attn_k"},
    {"layers.#.attention.value", "blk.#.attn_v"},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.attention.query_norm", "blk.#.attn_q_norm", kPlusOne},
    {"layers.#.attention.key_norm", "blk.#.attn_k_norm", kPlusOne},
    {"layers.#.attention_post_norm", "blk.#.post_attention_norm", kPlusOne},
    {"layers.#.mlp_norm", "blk.#.ffn_norm", kPlusOne},
    {"layers.#.mlp.gate", "blk.#.ffn_gate"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"layers.#.mlp_post_norm", "blk.#.post_ffw_norm", kPlusOne},
    {"final_norm", "output_norm", kPlusOne},
};
constexpr NameRow kPhi3Names[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_qkv", kQuery},
    {"layers.#.attention.key", "blk.#.attn_qkv", kKey},
    {"layers.#.attention.value", "blk.#.attn_qkv", kValue},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate", "blk.#.ffn_up", {.part = Part::gate}},
    {"layers.#.mlp.up", "blk.#.ffn_up", {.part = Part::up}},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};
constexpr NameRow kGpt2Names[] = {
    {"embedding", "token_embd"},
    {"position", "position_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_qkv", kQuery},
    {"layers.#.attention.key", "blk.#.attn_qkv", kKey},
    {"layers.#.attention.value", "blk.#.attn_qkv", kValue},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};

void shape_fields(GgufFields& f, ModelConfig& c) {
  f.size("block_count", c.layers);
  f.size("context_length", c.context);
  f.size("embedding_length", c.hidden);
  f.size("feed_forward_length", c.ffn, 0);
  f.size("attention.head_count", c.heads);
  f.size("attention.head_count_kv", c.kv_heads, c.heads);
}

void head_fields(GgufFields& f, ModelConfig& c) {
  f.size("attention.key_length", c.head_dim, c.heads > 0 ? c.hidden / c.heads : 0);
  int64_t value_dim = c.head_dim, turned = c.turned_dim();
  f.size("attention.value_length", value_dim, c.head_dim);
  f.size("rope.dimension_count", turned, c.head_dim);
  f.number("rope.freq_base", c.rope_theta, 10000);
  if (!f.is_reading()) return;
  if (value_dim != c.head_dim) f.refuse("attention.value_length", "it must be that of keys");
  c.rotary_dim = turned == c.head_dim ? 0 : turned;
}

std::vector<double> wide(const std::vector<float>& narrow) { return {narrow.begin(), narrow.end()}; }
std::vector<float> narrow(const std::vector<double>& wide) { return {wide.begin(), wide.end()}; }

void read_factors(const GgufFields& f, ModelConfig& c) {
  RopeScaling& s = c.rope_scaling;
  const auto find = [&](const char* name) {
    const auto found = f.from().factors.find(name);
    if (found == f.from().factors.end()) return std::vector<double>();
    return wide(found->second);
  };
  const std::vector<double> always = find("rope_freqs");
  s.kind = Kind::longrope;
  if (!always.empty()) {
    s.short_factors = s.long_factors = always;
    s.original_context = c.context, s.attention_factor = 1;
    return;
  }
  s.short_factors = find("rope_factors_short"), s.long_factors = find("rope_factors_long");
}

void factor_fields(GgufFields& f, ModelConfig& c) {
  RopeScaling& s = c.rope_scaling;
  if (!f.is_reading()) {
    const bool are_same = s.short_factors == s.long_factors && s.attention_factor == 1;
    if (are_same && f.from().architecture == "llama") {
      f.to().factors["rope_freqs"] = narrow(s.long_factors);
      return;
    }
    f.to().factors["rope_factors_short"] = narrow(s.short_factors);
    f.to().factors["rope_factors_long"] = narrow(s.long_factors);
    f.set("rope.scaling.type", std::string("longrope"));
  } else {
    read_factors(f, c);
    if (f.from().factors.contains("rope_freqs")) return;
  }
  f.size("rope.scaling.original_context_length", s.original_context, c.context);
  f.number("rope.scaling.attn_factor", s.attention_factor, 0);
}

void scaling_fields(GgufFields& f, ModelConfig& c, bool has_factors = false) {
  RopeScaling& s = c.rope_scaling;
  if (has_factors && (f.is_reading() ? !f.from().factors.empty() : s.kind == Kind::longrope))
    return factor_fields(f, c);
  std::string type = s.kind == Kind::linear ? "linear" : s.kind == Kind::yarn ? "yarn" : "none";
  if (!f.is_reading() && s.kind == Kind::none) return;
  f.text("rope.scaling.type", type, "none");
  if (type == "none") return;
  if (type != "linear" && type != "yarn")
    f.refuse("rope.scaling.type", fmt::format("\"{}\" is not read; there are none, linear, yarn", type));
  s.kind = type == "linear" ? Kind::linear : Kind::yarn;
  f.number("rope.scaling.factor", s.factor, 1);
  if (s.kind == Kind::linear) return;
  f.size("rope.scaling.original_context_length", s.original_context, c.context);
  f.number("rope.scaling.yarn_beta_fast", s.beta_fast, 32);
  f.number("rope.scaling.yarn_beta_slow", s.beta_slow, 1);
}

// The local layers: all but every n-th, as a number, or told one by one. every: what a file that does not say means.
void window_fields(GgufFields& f, ModelConfig& c, int64_t absent, int64_t every) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  if (!f.is_reading()) {
    if (c.window == 0 && absent == 0) return;
    f.set("attention.sliding_window", c.window);
    std::vector<bool> is_local;
    for (int64_t i = 0; i < c.layers; ++i) is_local.push_back(c.is_local(i));
    if (c.first_local_layer > 0)
      f.set(kPattern, std::move(is_local));
    else if (c.global_every != every)
      f.set(kPattern, c.global_every);
    if (absent == 0)
      f.note(
          fmt::format("llama.cpp lets every token see all before it in {} models, where local layers of this one "
                      "see the last {}: longer texts differ",
                      f.from().architecture, c.window));
    return;
  }
  f.size("attention.sliding_window", c.window, absent);
  c.first_local_layer = 0;
  if (c.window == 0) return;
  c.global_every = 0;
  if (const auto* flags = f.flags(kPattern)) {
    if (!set_local_layers(c, *flags)) f.refuse(kPattern, "weft knows every n-th layer as a global one");
  } else {
    f.size(kPattern, c.global_every, every);
  }
}

void all_bias_fields(const GgufFields& f, ModelConfig& c) {
  if (!f.is_reading()) return;
  c.bias = false;
  c.qkv_bias = f.from().has_qkv_bias, c.output_bias = f.from().has_output_bias, c.mlp_bias = f.from().has_mlp_bias;
}

void rms_fields(GgufFields& f, ModelConfig& c) {
  shape_fields(f, c);
  f.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  head_fields(f, c);
}

void expert_fields(GgufFields& f, ModelConfig& c) {
  f.size("expert_count", c.experts, 0);
  if (c.experts == 0) return;
  f.size("expert_used_count", c.experts_per_token);
  f.size("expert_feed_forward_length", c.expert_ffn, c.ffn);
  if (c.ffn == 0) c.ffn = c.expert_ffn;
}

void llama_fields(GgufFields& f, ModelConfig& c) {
  if (!f.is_reading() && c.experts > 0) c.ffn = c.expert_ffn;  // what llama.cpp takes for an expert's width
  rms_fields(f, c);
  scaling_fields(f, c, true);
  all_bias_fields(f, c);
  window_fields(f, c, 0, 0);
  expert_fields(f, c);
}

void qwen_fields(GgufFields& f, ModelConfig& c) {
  rms_fields(f, c);
  scaling_fields(f, c);
  window_fields(f, c, 0, 0);
}
void qwen2_fields(GgufFields& f, ModelConfig& c) {
  qwen_fields(f, c);
  if (f.is_reading()) c.qkv_bias = f.from().has_qkv_bias;
}
void qwen3_moe_fields(GgufFields& f, ModelConfig& c) {
  qwen_fields(f, c);
  expert_fields(f, c);
}

void phi3_fields(GgufFields& f, ModelConfig& c) {
  rms_fields(f, c);
  scaling_fields(f, c, true);
  window_fields(f, c, 0, 0);
}

// By the number of layers llama.cpp tells the largest model, which divides scores otherwise.
void gemma_fields(GgufFields& f, ModelConfig& c, int64_t layers_of_largest, int64_t every) {
  rms_fields(f, c);
  scaling_fields(f, c);
  window_fields(f, c, 4096, every);
  const bool is_largest = c.layers == layers_of_largest && c.heads > 0;
  const float usual = float(1 / std::sqrt(double(is_largest ? c.hidden / c.heads : c.head_dim)));
  if (!f.is_reading() && std::abs(c.score_scale() - usual) > 1e-6f * usual) {
    f.set("attention.scale", double(c.score_scale()));
    f.note(fmt::format("llama.cpp multiplies scores by {} in such a {} model, where this one has {}", usual,
                       f.from().architecture, c.score_scale()));
  }
  if (!f.is_reading()) return;
  f.number("attention.scale", c.attention_scale, usual);
  c.embedding_scale = float(std::sqrt(double(c.hidden)));
  if (f.from().has_head) throw Error("{}: {} models have no output.weight", f.from().source, f.from().architecture);
}

void gemma2_fields(GgufFields& f, ModelConfig& c) {
  gemma_fields(f, c, 46, 2);
  if (!f.is_reading() && !(c.attention_softcap > 0 && c.logit_softcap > 0))
    f.refuse("attn_logit_softcapping", "it must be above 0");
  f.number("attn_logit_softcapping", c.attention_softcap, 50);
  f.number("final_logit_softcapping", c.logit_softcap, 30);
}

void gemma3_fields(GgufFields& f, ModelConfig& c) {
  gemma_fields(f, c, 62, 6);
  f.number("rope.freq_base_swa", c.local_rope_theta, 10000);
  f.number("final_logit_softcapping", c.logit_softcap, 0);
}

void gpt2_fields(GgufFields& f, ModelConfig& c) {
  shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps);
  all_bias_fields(f, c);
  if (f.is_reading()) c.norm_bias = true;
}

void olmo_fields(GgufFields& f, ModelConfig& c) {
  shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps, 1e-5);
  head_fields(f, c);
  double clamp = 0;
  if (f.is_reading()) f.number("attention.clamp_kqv", clamp, 0);
  if (clamp != 0) f.refuse("attention.clamp_kqv", "clamped queries, keys and values are not read");
}

void olmo2_fields(GgufFields& f, ModelConfig& c) {
  rms_fields(f, c);
  scaling_fields(f, c);
}

// In the order in which a model looks for one that can say all of it.
constexpr GgufFamily kFamilies[] = {
    {"llama", "llama", llama_fields, kPairedNames},  // Mistral and Mixtral too
    {"qwen2", "qwen2", qwen2_fields, kHalvedNames},
    {"qwen3", "qwen3", qwen_fields, kHalvedNames},
    {"qwen3moe", "qwen3_moe", qwen3_moe_fields, kHalvedNames},
    {"phi3", "phi3", phi3_fields, kPhi3Names},
    {"gemma2", "gemma2", gemma2_fields, kGemmaNames},
    {"gemma3", "gemma3", gemma3_fields, kGemmaNames},
    {"gpt2", "gpt2", gpt2_fields, kGpt2Names},
    {"olmo", "olmo", olmo_fields, kPairedNames},
    {"olmo2", "olmo2", olmo2_fields, kHalvedNames},
};

// Llama 3's scaling as factors of each pair, which is all that a file keeps of it.
ModelConfig with_factors(ModelConfig c) {
  RopeScaling& s = c.rope_scaling;
  if (s.kind != Kind::llama3) return c;
  ModelConfig plain = c;
  plain.rope_scaling = {};
  std::vector<double> factors = rope_frequencies(plain, 1);
  const std::vector<double> stretched = rope_frequencies(c, 1);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = double(float(factors[i] / stretched[i]));
  s = {.kind = Kind::longrope,
       .original_context = c.context,
       .attention_factor = 1,
       .short_factors = factors,
       .long_factors = factors};
  return c;
}

// What of a model a file can keep: numbers are single.
ModelConfig kept(const ModelConfig& config) {
  ModelConfig c = essence(config);
  RopeScaling& s = c.rope_scaling;
  if (s.kind == Kind::longrope) s.attention_factor = s.rotation_factor(c.context);
  for (double* x : {&c.rope_theta, &c.local_rope_theta, &s.factor, &s.beta_fast, &s.beta_slow, &s.attention_factor})
    *x = double(float(*x));
  for (auto* factors : {&s.short_factors, &s.long_factors})
    for (double& x : *factors) x = double(float(x));
  return c;
}

std::optional<GgufDescription> description_of(const GgufFamily& family, const ModelConfig& config) {
  GgufDescription d{.source = "the description",
                    .architecture = std::string(family.architecture),
                    .vocab = config.vocab,
                    .has_head = !config.tie_embeddings,
                    .has_qkv_bias = config.has_qkv_bias(),
                    .has_output_bias = config.has_output_bias(),
                    .has_mlp_bias = config.has_mlp_bias()};
  ModelConfig c = config;
  GgufFields fields(d);
  try {
    if (c.rope_scaling.kind == Kind::longrope)
      c.rope_scaling.attention_factor = kept(c).rope_scaling.attention_factor;
    family.fields(fields, c);
    if (kept(config_of(d)) != kept(config)) return {};
    names_of(config, family.names);
  } catch (const Error&) {  // it has no words for some part of the model
    return {};
  }
  d.keys.emplace("vocab_size", config.vocab);
  return d;
}

}  // namespace

const GgufFamily& gguf_family_of(const GgufDescription& description) {
  std::vector<std::string> known;
  for (const GgufFamily& f : kFamilies) {
    if (f.architecture == description.architecture) return f;
    known.emplace_back(f.architecture);
  }
  throw Error("{}: weft reads no GGUF models of architecture \"{}\"; it reads {}", description.source,
              description.architecture, fmt::join(known, ", "));
}

ModelConfig config_of(const GgufDescription& description) {
  const GgufFamily& family = gguf_family_of(description);
  ModelConfig c = family_defaults(std::string(family.family));
  c.vocab = description.vocab;
  c.tie_embeddings = !description.has_head;
  GgufFields fields(description);
  family.fields(fields, c);
  if (c.vocab == 0) throw Error("{} has no tensor 'token_embd.weight' with rows", description.source);
  try {
    complete(c);
  } catch (const UsageError& e) {
    throw Error("{}: {}", description.source, e.what());
  }
  return c;
}

GgufDescription describe(const ModelConfig& model) {
  const ModelConfig config = with_factors(model);
  for (const bool is_own : {true, false})
    for (const GgufFamily& family : kFamilies)
      if (is_own == (family.family == config.family))
        if (auto description = description_of(family, config)) return *description;
  throw Error("no architecture of GGUF files that weft writes computes what this {} model does", model.family);
}

}  // namespace weft
