// ModelParts: layers to stages to ranks.
#include "weft/train/model_parts.h"

#include <algorithm>
#include <cmath>

#include "weft/parallel/pipeline/layer_placement.h"

namespace weft {

namespace {

// Where stages go down the ranks and up again, it is the ranks that are to take as long as each other: the first has
// the embedding and the head, and every rank's layers are shared out to its two stages.
std::vector<LayerRange> place_in_v(int num_layers, int num_ranks, double layer, double head) {
  const std::vector<LayerRange> of_ranks = place_layers(num_layers, num_ranks, {.layer = layer, .embedding = head});
  std::vector<int> sizes(size_t(num_ranks) * 2);
  for (int r = 0; r < num_ranks; ++r) {
    const int all = of_ranks[size_t(r)].size();
    const double half = (double(all) + (r == 0 ? head / layer : 0)) / 2;
    const int down = std::clamp(int(std::lround(half)), 0, all);
    sizes[size_t(r)] = down, sizes[sizes.size() - 1 - size_t(r)] = all - down;
  }
  std::vector<LayerRange> ranges;
  for (const int size : sizes) {
    const int begin = ranges.empty() ? 0 : ranges.back().end;
    ranges.push_back({begin, begin + size});
  }
  return ranges;
}

}  // namespace

std::vector<DecoderPart> decoder_parts(const Recipe& recipe, const PipelineShape& shape) {
  const int stages = shape.num_stages();
  const ModelConfig& m = recipe.model;
  const double head = 6 * double(m.hidden) * double(m.vocab);
  const double layer = (m.flops_per_token(recipe.train.seq_len) - head) / double(m.layers);
  const std::string& wish = recipe.mesh.layers_per_stage;
  const bool is_v = stages > 1 && shape.rank_of(0) == shape.rank_of(stages - 1);
  const std::vector<LayerRange> ranges = !wish.empty() ? parse_layers_per_stage(wish, int(m.layers), stages)
                                         : is_v        ? place_in_v(int(m.layers), shape.num_ranks, layer, head)
                                                : place_layers(int(m.layers), stages, {.layer = layer, .head = head});
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

}  // namespace weft
