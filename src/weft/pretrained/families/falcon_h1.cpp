// Falcon-H1 as Hugging Face saves it: attention and Mamba-2 side by side in every layer, and factors of what nearly
// every projection gives. Of factors that follow each other weft keeps the product.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_falcon_h1 {
namespace {

// A list of so many factors; all 1 where there is none.
std::vector<double> factors(HfFields& f, const char* key, size_t count, std::vector<double> told = {}) {
  if (told.empty()) told.assign(count, 1);
  if (f.is_reading() && !f.has(key)) return told;
  f.numbers(key, told);
  if (told.size() != count) f.refuse(key, fmt::format("it must have {} numbers", count));
  return told;
}

// Of keys, beside the root of a head's width; the float that gives the scale again, where there is one.
double key_factor(const ModelConfig& c) {
  if (c.attention_scale == 0) return 1;
  const double root = std::sqrt(double(c.head_dim)), exact = double(c.attention_scale) * root;
  const double single = double(float(exact));
  return float(single / root) == c.attention_scale ? single : exact;
}

// A factor of attention's input is one of queries, of keys and of values, unless these have biases.
void attention_factors(HfFields& f, ModelConfig& c) {
  constexpr const char* kInputs = "attention_in_multiplier";
  double keys = f.is_reading() ? 1 : key_factor(c), inputs = 1, outputs = double(c.attention_out_scale);
  f.number("key_multiplier", keys, 1);
  f.number(kInputs, inputs, 1);
  if (!f.is_reading()) return f.number("attention_out_multiplier", c.attention_out_scale, 1);
  f.number("attention_out_multiplier", outputs, 1);
  if (inputs != 1 && c.has_qkv_bias()) f.refuse(kInputs, "only 1 is where attention has biases");
  const double scale = keys * inputs * inputs;
  if (scale != 1) c.attention_scale = float(scale / std::sqrt(double(width_of_head(c))));
  c.attention_out_scale = float(outputs * inputs);
}

void state_factors(HfFields& f, ModelConfig& c) {
  constexpr size_t kNumScales = 5;
  double inputs = 1;
  f.number("ssm_in_multiplier", inputs, 1);
  c.state_input_scales = factors(f, "ssm_multipliers", kNumScales, c.state_input_scales);
  for (double& x : c.state_input_scales) x *= inputs;
  f.number("ssm_out_multiplier", c.state_out_scale, 1);
}

void norm_fields(HfFields& f, ModelConfig& c) {
  bool has_norm = c.state_norm != StateNorm::none, is_before_gate = c.state_norm == StateNorm::before_gate;
  f.flag("mamba_rms_norm", has_norm, false);
  f.flag("mamba_norm_before_gate", is_before_gate, true);
  c.state_norm = !has_norm ? StateNorm::none : is_before_gate ? StateNorm::before_gate : StateNorm::gated;
}

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.kv_heads = 8, .norm_eps = 1e-5});
  f.size("max_position_embeddings", c.context, 8192);
  rope_fields(f, c, 10000);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  f.only("projectors_bias", false);
  mamba_fields_by_width(f, c);
  norm_fields(f, c);
  f.number("embedding_multiplier", c.embedding_scale, 1);
  f.number("lm_head_multiplier", c.logit_scale, 1);
  attention_factors(f, c);
  state_factors(f, c);
  const std::vector<double> of_mlp =
      factors(f, "mlp_multipliers", 2, {double(c.mlp_gate_scale), double(c.mlp_out_scale)});
  c.mlp_gate_scale = float(of_mlp[0]), c.mlp_out_scale = float(of_mlp[1]);
}

const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({feed_forward_names(), mamba_names(), std::span(llama_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_falcon_h1

std::vector<HfFamily> hf_falcon_h1_families() {
  using namespace hf_falcon_h1;

  return {{.family = "falcon_h1",
           .model_type = "falcon_h1",
           .architecture = "FalconH1ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
