// ModelConfig as JSON, both ways.
#include "weft/models/model_json.h"

#include <nlohmann/json.hpp>

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr int64_t kMostOfAnything = int64_t(1) << 24;

LoraConfig parse_lora(const JsonView& json) {
  std::vector<std::string> targets;
  const JsonView names = json.at("targets");
  for (int64_t i = 0; i < names.size(); ++i) targets.push_back(names.at(i).string());
  return {.rank = json.at("rank").integer(1, kMostLoraRank),
          .alpha = float(json.at("alpha").number()),
          .dropout = float(json.at("dropout").number()),
          .targets = lora_targets(targets),
          .is_dora = json.boolean_or("dora", false)};
}

}  // namespace

std::string to_json(const ModelConfig& c) {
  nlohmann::json json{
      {"family", c.family},
      {"layers", c.layers},
      {"hidden", c.hidden},
      {"heads", c.heads},
      {"kv_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"ffn", c.ffn},
      {"vocab", c.vocab},
      {"context", c.context},
      {"tie_embeddings", c.tie_embeddings},
      {"bias", c.bias},
      {"norm", c.norm == NormKind::rms ? "rmsnorm" : "layernorm"},
      {"norm_eps", c.norm_eps},
      {"activation", activation_name(c)},
      {"position", c.position == PositionKind::rope ? "rope" : "learned"},
      {"rope_theta", c.rope_theta},
      {"qk_norm", c.qk_norm},
  };
  if (c.experts > 0)
    json.update({{"experts", c.experts},
                 {"experts_per_token", c.experts_per_token},
                 {"shared_experts", c.shared_experts},
                 {"expert_ffn", c.expert_ffn},
                 {"first_dense_layers", c.first_dense_layers},
                 {"router", router_name(c)},
                 {"norm_topk", c.norm_topk},
                 {"routed_scale", c.routed_scale},
                 {"capacity_factor", c.capacity_factor},
                 {"aux_loss", c.aux_loss},
                 {"z_loss", c.z_loss},
                 {"router_bias_rate", c.router_bias_rate}});
  if (c.lora.rank > 0)
    json["lora"] = {{"rank", c.lora.rank},
                    {"alpha", c.lora.alpha},
                    {"dropout", c.lora.dropout},
                    {"targets", lora_target_names(c.lora)},
                    {"dora", c.lora.is_dora}};
  return to_json_text(json, 2);
}

ModelConfig parse_model_json(std::string_view text, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(text, source);
  const JsonView json = document.root();
  try {
    ModelConfig c = family_defaults(json.at("family").string());
    const auto size = [&](const char* key) { return json.at(key).integer(0, kMostOfAnything); };
    c.layers = size("layers"), c.hidden = size("hidden"), c.heads = size("heads"), c.kv_heads = size("kv_heads");
    c.head_dim = size("head_dim"), c.ffn = size("ffn"), c.vocab = size("vocab"), c.context = size("context");
    c.tie_embeddings = json.at("tie_embeddings").boolean();
    c.bias = json.at("bias").boolean();
    c.norm = json.at("norm").string() == "rmsnorm" ? NormKind::rms : NormKind::layer;
    c.norm_eps = float(json.at("norm_eps").number());
    set_activation(c, json.at("activation").string());
    c.position = json.at("position").string() == "rope" ? PositionKind::rope : PositionKind::learned;
    c.rope_theta = json.at("rope_theta").number();
    c.qk_norm = json.at("qk_norm").boolean();
    if (json.has("experts")) {
      c.experts = size("experts"), c.experts_per_token = size("experts_per_token");
      c.shared_experts = size("shared_experts"), c.expert_ffn = size("expert_ffn");
      c.first_dense_layers = size("first_dense_layers");
      set_router(c, json.at("router").string());
      c.norm_topk = json.at("norm_topk").boolean();
      const auto number = [&](const char* key) { return float(json.at(key).number()); };
      c.routed_scale = number("routed_scale"), c.capacity_factor = number("capacity_factor");
      c.aux_loss = number("aux_loss"), c.z_loss = number("z_loss"), c.router_bias_rate = number("router_bias_rate");
    }
    if (json.has("lora")) c.lora = parse_lora(json.at("lora"));
    complete(c);
    return c;
  } catch (const UsageError& e) {
    throw Error("{}: {}", source, e.what());
  }
}

}  // namespace weft
