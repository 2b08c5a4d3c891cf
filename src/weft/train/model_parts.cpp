// ModelParts: layers to stages to ranks.
#include "weft/train/model_parts.h"

#include "weft/parallel/pipeline/layer_placement.h"

namespace weft {

std::vector<DecoderPart> decoder_parts(const Recipe& recipe, const PipelineShape& shape) {
  const int stages = shape.num_stages();
  const ModelConfig& m = recipe.model;
  const double head = 6 * double(m.hidden) * double(m.vocab);
  const double layer = (m.flops_per_token(recipe.train.seq_len) - head) / double(m.layers);
  const std::string& wish = recipe.mesh.layers_per_stage;
  const std::vector<LayerRange> ranges = wish.empty()
                                             ? place_layers(int(m.layers), stages, {.layer = layer, .head = head})
                                             : parse_layers_per_stage(wish, int(m.layers), stages);
  std::vector<DecoderPart> parts;
  for (int s = 0; s < stages; ++s)
    parts.push_back({.first_layer = ranges[size_t(s)].begin,
                     .num_layers = ranges[size_t(s)].size(),
                     .has_embedding = s == 0,
                     .has_head = s + 1 == stages,
                     .is_tied_elsewhere = m.tie_embeddings && shape.rank_of(0) != shape.rank_of(stages - 1)});
  return parts;
}

ModelParts::ModelParts(const Recipe& recipe, const Mesh& mesh, const Schedule& schedule) {
  partition_.tensor = TensorParallel(mesh.tp(), recipe.mesh.sequence_parallel);
  partition_.experts = &mesh.ep();
  partition_.context = &mesh.cp();
  const std::vector<DecoderPart> all = decoder_parts(recipe, schedule.shape());
  for (int s = 0; s < schedule.num_stages(); ++s) {
    if (schedule.rank_of(s) != mesh.place().pp) continue;
    Param* const embedding = parts_.empty() ? nullptr : parts_.front()->embedding();
    parts_.push_back(std::make_unique<Decoder>(recipe.model, partition_, all[size_t(s)], embedding));
    parts_.back()->set_recompute(recipe.train.recompute);
    const bool has_both = all[size_t(s)].has_head && parts_.front()->embedding();
    if (has_both && recipe.model.tie_embeddings) shared_group_ = 0;
  }
}

std::vector<std::vector<Param*>> ModelParts::param_groups() {
  std::vector<std::vector<Param*>> all;
  for (const auto& part : parts_)
    for (auto& group : part->param_groups()) all.push_back(std::move(group));
  return all;
}

std::vector<Param*> ModelParts::params() {
  std::vector<Param*> all;
  for (const auto& part : parts_)
    for (Param* p : part->params()) all.push_back(p);
  return all;
}

}  // namespace weft
