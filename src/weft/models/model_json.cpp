// ModelConfig as JSON, both ways.
#include "weft/models/model_json.h"

#include <nlohmann/json.hpp>

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr int64_t kMostOfAnything = int64_t(1) << 24;

}  // namespace

std::string to_json(const ModelConfig& c) {
  const nlohmann::json json{
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
    complete(c);
    return c;
  } catch (const UsageError& e) {
    throw Error("{}: {}", source, e.what());
  }
}

}  // namespace weft
