// ModelParts: layers to stages to ranks.
#include "weft/train/model_parts.h"

namespace weft {

std::vector<DecoderPart> decoder_parts(const Recipe& recipe, const PipelineShape& shape) {
  const int stages = shape.num_stages();
  std::vector<DecoderPart> parts;
  for (int s = 0; s < stages; ++s) {
    const Cut layers = even_cut(recipe.model.layers, s, stages);
    parts.push_back(
        {.first_layer = layers.begin,
         .num_layers = layers.count,
         .has_embedding = s == 0,
         .has_head = s + 1 == stages,
         .is_tied_elsewhere = recipe.model.tie_embeddings && shape.rank_of(0) != shape.rank_of(stages - 1)});
  }
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
