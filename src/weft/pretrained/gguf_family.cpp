// GGUF architectures: finding the one of a file, and one that can say all of a model.
#include "weft/pretrained/gguf_family.h"

#include "weft/models/rope_tables.h"
#include "weft/pretrained/config_essence.h"
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace {

using Kind = RopeScaling::Kind;

// In the order in which a model looks for one that can say all of it.
const std::vector<GgufFamily>& families() {
  static const std::vector<GgufFamily> all = [] {
    std::vector<GgufFamily> families;
    for (const auto& some :
         {gguf_llama_families(), gguf_qwen_families(), gguf_phi_families(), gguf_gemma_families(),
          gguf_layer_norm_families(), gguf_olmo_families(), gguf_cohere_families(), gguf_glm_families(),
          gguf_exaone_families(), gguf_gpt_oss_families(), gguf_llama4_families(), gguf_hunyuan_families(),
          gguf_minimax_families(), gguf_deepseek_families(), gguf_kimi_families(), gguf_lfm2_families(),
          gguf_nemotron_h_families(), gguf_falcon_h1_families(), gguf_afmoe_families()})
      families.insert(families.end(), some.begin(), some.end());
    return families;
  }();
  return all;
}

constexpr const char* kCausal = "attention.causal";

void direction_field(GgufFields& f, ModelConfig& c) {
  const bool is_known = c.bidirectional;  // of the architecture
  bool is_causal = !is_known;
  f.flag(kCausal, is_causal, is_causal);
  c.bidirectional = !is_causal;
  if (c.bidirectional && !is_known && c.window > 0)
    f.refuse(kCausal, "of models with local layers it must be true: what these see to both sides is not known");
}

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
  if (s.kind == Kind::longrope || s.kind == Kind::yarn) s.attention_factor = s.rotation_factor(c.context);
  for (double* x : {&c.rope_theta, &c.local_rope_theta, &s.factor, &s.beta_fast, &s.beta_slow, &s.attention_factor,
                    &s.mscale, &s.mscale_all, &s.query_beta})
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
                    .has_mlp_bias = config.has_mlp_bias(),
                    .has_head_bias = config.head_bias,
                    .has_head_norm = config.qk_norm,
                    .has_router_bias = config.has_router_bias(),
                    .lacks_values = config.global_values_are_keys,
                    .has_layer_scale = config.layer_scale,
                    .has_state_norm = config.state_norm != StateNorm::none};
  ModelConfig c = config;
  GgufFields fields(d);
  try {
    if (c.rope_scaling.kind == Kind::longrope)
      c.rope_scaling.attention_factor = kept(c).rope_scaling.attention_factor;
    family.fields(fields, c);
    if (c.bidirectional) fields.set(kCausal, false);
    if (kept(config_of(d)) != kept(config)) return {};
    names_of(family, config);
  } catch (const Error&) {  // it has no words for some part of the model
    return {};
  }
  d.keys.emplace("vocab_size", config.vocab);
  return d;
}

constexpr NameRow kMtp[] = {{"layers.#.mtp.embedding_norm", "blk.#.nextn.enorm"},
                            {"layers.#.mtp.hidden_norm", "blk.#.nextn.hnorm"},
                            {"layers.#.mtp.projection", "blk.#.nextn.eh_proj"},
                            {"layers.#.mtp.norm", "blk.#.nextn.shared_head_norm"}};

}  // namespace

std::vector<NameRow> rows_of(const GgufFamily& family, const ModelConfig& config) {
  return joined({family.names(config), std::span(kMtp)});
}

std::vector<ParamNames> names_of(const GgufFamily& family, const ModelConfig& config) {
  return names_of(config, rows_of(family, config));
}

const GgufFamily& gguf_family_of(const GgufDescription& description) {
  std::vector<std::string> known;
  for (const GgufFamily& f : families()) {
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
  direction_field(fields, c);
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
    for (const GgufFamily& family : families())
      if (is_own == (family.family == config.family))
        if (auto description = description_of(family, config)) return *description;
  throw Error("no architecture of GGUF files that weft writes computes what this {} model does", model.family);
}

}  // namespace weft
