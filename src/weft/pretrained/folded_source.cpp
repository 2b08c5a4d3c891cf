// FoldedSource: a factor to each parameter.
#include "weft/pretrained/folded_source.h"

#include <cmath>

namespace weft {
namespace {

// Scores are products of keys, unless these are normed, or made of latent rows.
bool has_key_factor(const ModelConfig& c) {
  return c.attention_scale > 0 && !c.qk_norm && !c.qk_norm_across && !c.is_latent();
}
bool has_two_tables(const ModelConfig& c) { return !c.tie_embeddings; }

// What both parts add is multiplied by residual_scale behind norms, which are no matrices.
bool is_behind_norms(const ModelConfig& c) { return c.block == BlockKind::post || c.block == BlockKind::both; }
double residual_factor(const ModelConfig& c) { return is_behind_norms(c) ? 1 : double(c.residual_scale); }

ModelConfig without_factors(ModelConfig c) {
  if (has_key_factor(c)) c.attention_scale = 0;
  if (has_two_tables(c)) c.embedding_scale = c.logit_scale = 1;
  if (!is_behind_norms(c)) c.residual_scale = 1;
  c.attention_out_scale = c.state_out_scale = c.mlp_out_scale = c.mlp_gate_scale = 1;
  c.state_input_scales.clear();
  return c;
}

double state_factor(const ModelConfig& c, std::string_view part) {
  constexpr std::string_view kInputs[] = {"state.gate", "state.value", "state.key", "state.query", "state.decay"};
  if (part == "state.output") return residual_factor(c) * double(c.state_out_scale);
  for (size_t i = 0; i < std::size(kInputs) && !c.state_input_scales.empty(); ++i)
    if (part == kInputs[i]) return c.state_input_scales[i];
  return 1;
}

// part: a parameter's name between its layer's number and ".weight" or ".bias".
double layer_factor(const ModelConfig& c, std::string_view part) {
  if (part == "attention.key")
    return has_key_factor(c) ? double(c.attention_scale) * std::sqrt(double(c.head_dim)) : 1;
  if (part == "attention.output") return residual_factor(c) * double(c.attention_out_scale);
  if (part == "mlp.down" || part == "moe.experts.down" || part == "moe.shared.down")
    return residual_factor(c) * double(c.mlp_out_scale);
  if (part == "mlp.gate") return double(c.mlp_gate_scale);
  return state_factor(c, part);
}

double factor_of(const ModelConfig& c, std::string_view param) {
  constexpr std::string_view kLayers = "layers.";
  if (has_two_tables(c) && param == "embedding.weight") return double(c.embedding_scale);
  if (has_two_tables(c) && param == "head.weight") return double(c.logit_scale);
  const size_t end = param.rfind('.');
  if (!param.starts_with(kLayers)) return 1;
  const size_t begin = param.find('.', kLayers.size());
  return begin < end ? layer_factor(c, param.substr(begin + 1, end - begin - 1)) : 1;
}

class FoldedSource final : public ModelSource {
 public:
  explicit FoldedSource(const ModelSource& source)
      : ModelSource(source.path(), source.kind(), without_factors(source.config())), source_(source) {}
  const std::vector<ParamNames>& names() const override { return source_.names(); }
  const StoredTensors& tensors() const override { return source_.tensors(); }
  int64_t step() const override { return source_.step(); }
  std::unique_ptr<Tokenizer> tokenizer() const override { return source_.tokenizer(); }
  std::optional<ChatTemplate::Text> chat_template() const override { return source_.chat_template(); }
  SpecialIds special_ids() const override { return source_.special_ids(); }
  SamplingDefaults sampling_defaults() const override { return source_.sampling_defaults(); }
  EmbeddingRule embedding_rule() const override { return source_.embedding_rule(); }
  ScoreRule score_rule() const override { return source_.score_rule(); }
  std::optional<DType> dtype_of(const std::string& param) const override { return source_.dtype_of(param); }

  std::optional<StoredValues> values_of(const std::string&) const override { return {}; }
  std::optional<RowsOfBlocks> blocks_of(const std::string&) const override { return {}; }
  void read(const std::string& param, int64_t first, std::span<float> out) const override {
    source_.read(param, first, out);
    const double factor = factor_of(source_.config(), param);
    if (factor == 1) return;
    for (float& x : out) x = float(double(x) * factor);
  }

 private:
  const ModelSource& source_;
};

}  // namespace

bool has_factors(const ModelConfig& c) {
  return c.attention_out_scale != 1 || c.state_out_scale != 1 || c.mlp_out_scale != 1 || c.mlp_gate_scale != 1 ||
         !c.state_input_scales.empty();
}

std::unique_ptr<ModelSource> fold_factors(const ModelSource& source) {
  return std::make_unique<FoldedSource>(source);
}

}  // namespace weft
