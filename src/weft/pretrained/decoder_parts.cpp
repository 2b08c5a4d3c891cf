// decoder_parts: layers to stages.
#include "weft/pretrained/decoder_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

std::vector<DecoderPart> decoder_parts(const ModelConfig& m, int64_t seq_len, const std::string& wish,
                                       const PipelineShape& shape) {
  const int stages = shape.num_stages();
  if (stages > 1 && m.stands_on_one_stage())
    throw UsageError(
        "mesh.pp = {}: layers of this model have inputs from the embedding, or keys or a choice of keys of other "
        "layers, and stand on one stage: leave pp out",
        shape.num_ranks);
  const double head = 6 * double(m.hidden) * double(m.vocab) + m.mtp_flops_per_token(seq_len);
  std::vector<double> layers;
  for (int64_t i = 0; i < m.layers; ++i) layers.push_back(m.layer_flops(i, seq_len));
  const double layer = std::accumulate(layers.begin(), layers.end(), 0.0) / double(m.layers);
  const bool is_v = stages > 1 && shape.rank_of(0) == shape.rank_of(stages - 1);
  const std::vector<LayerRange> ranges = !wish.empty() ? parse_layers_per_stage(wish, int(m.layers), stages)
                                         : is_v        ? place_in_v(int(m.layers), shape.num_ranks, layer, head)
                                                       : place_layers(layers, stages, 0, head);
  const bool reads_embedding = m.tie_embeddings || m.mtp_layers > 0;  // the last stage
  std::vector<DecoderPart> parts;
  for (int s = 0; s < stages; ++s)
    parts.push_back({.first_layer = ranges[size_t(s)].begin,
                     .num_layers = ranges[size_t(s)].size(),
                     .has_embedding = s == 0,
                     .has_head = s + 1 == stages,
                     .is_tied_elsewhere = reads_embedding && shape.rank_of(0) != shape.rank_of(stages - 1)});
  return parts;
}

Partition partition_of(const Mesh& mesh, bool cuts_sequence) {
  return {.tensor = TensorParallel(mesh.tp(), cuts_sequence), .experts = &mesh.ep(), .context = &mesh.cp()};
}

}  // namespace weft
