// ModelParts: stages to ranks.
#include "weft/train/model_parts.h"

#include "weft/pretrained/decoder_parts.h"

namespace weft {

void choose_trained(const Recipe& recipe, Decoder& model) {
  if (recipe.model.lora.rank == 0) return;
  for (Param* p : model.params()) p->trainable = is_adapter(p->name) || p->name == kScoreName;
}

ParamCount count_params(const Recipe& recipe) {
  Decoder whole(recipe.model);  // its shapes only
  choose_trained(recipe, whole);
  ParamCount count;
  for (const Param* p : whole.params()) {
    count.all += p->shape.numel();
    if (p->trainable) count.trained += p->shape.numel();
  }
  return count;
}

ModelParts::ModelParts(const Recipe& recipe, const Mesh& mesh, const Schedule& schedule)
    : partition_(partition_of(mesh, recipe.mesh.sequence_parallel)) {
  const std::vector<DecoderPart> all =
      decoder_parts(recipe.model, recipe.train.seq_len, recipe.mesh.layers_per_stage, schedule.shape());
  for (int s = 0; s < schedule.num_stages(); ++s) {
    if (schedule.rank_of(s) != mesh.place().pp) continue;
    Param* const embedding = parts_.empty() ? nullptr : parts_.front()->embedding();
    parts_.push_back(std::make_unique<Decoder>(recipe.model, partition_, all[size_t(s)], embedding));
    parts_.back()->set_recompute(recipe.train.recompute);
    if (recipe.train.precision == Precision::fp8) parts_.back()->multiply_in_float8();
    choose_trained(recipe, *parts_.back());
    if (recipe.train.gradients == GradientType::bf16) parts_.back()->sum_gradients_in_16_bits();
    const bool has_both = all[size_t(s)].has_head && parts_.front()->embedding();
    if (has_both && (recipe.model.tie_embeddings || recipe.model.mtp_layers > 0)) shared_group_ = 0;
  }
}

std::vector<std::vector<Param*>> ModelParts::param_groups() {
  std::vector<std::vector<Param*>> all;
  for (const auto& part : parts_)
    for (auto& group : part->param_groups()) all.push_back(std::move(group));
  return all;
}

}  // namespace weft
