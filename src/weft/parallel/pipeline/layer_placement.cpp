// place_layers: one layer after the other to the stage that is fastest with it, which is optimal for equal layers.
#include "weft/parallel/pipeline/layer_placement.h"

#include <charconv>
#include <tuple>

#include "weft/base/error.h"

namespace weft {
namespace {

std::vector<LayerRange> ranges_of(const std::vector<int>& counts) {
  std::vector<LayerRange> ranges;
  int begin = 0;
  for (const int count : counts) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<LayerRange> place_layers(int num_layers, int num_stages, const LayerCosts& costs) {
  check(num_layers >= 0 && num_stages >= 1, "{} layers on {} stages", num_layers, num_stages);
  check(costs.layer > 0 && costs.embedding >= 0 && costs.head >= 0, "a layer costs {}, the embedding {}, the head {}",
        costs.layer, costs.embedding, costs.head);
  std::vector<int> counts(size_t(num_stages), 0);
  // What to minimise; of equals the first.
  const auto rank_of = [&](int stage) {
    const bool is_first = stage == 0, is_last = stage + 1 == num_stages;
    const double others = (is_first ? costs.embedding : 0) + (is_last ? costs.head : 0);
    const int count = counts[size_t(stage)];
    return std::tuple(others + (count + 1) * costs.layer, count > 0 || is_first || is_last, -stage);
  };
  for (int layer = 0; layer < num_layers; ++layer) {
    int best = 0;
    for (int stage = 1; stage < num_stages; ++stage)
      if (rank_of(stage) < rank_of(best)) best = stage;
    ++counts[size_t(best)];
  }
  return ranges_of(counts);
}

std::vector<LayerRange> parse_layers_per_stage(std::string_view text, int num_layers, int num_stages) {
  std::vector<int> counts;
  int64_t total = 0;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view word = trimmed(rest.substr(0, comma));
    int count = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (error != std::errc() || end != word.data() + word.size() || count < 0)
      throw UsageError(
          "mesh.layers_per_stage: '{}' in \"{}\" is not a number of layers; write one for each stage, "
          "such as \"6,6,5,5\"",
          word, text);
    counts.push_back(count);
    total += count;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (int(counts.size()) != num_stages)
    throw UsageError("mesh.layers_per_stage: \"{}\" is for {} stages, the pipeline has {}; write {} numbers", text,
                     counts.size(), num_stages, num_stages);
  if (total != num_layers)
    throw UsageError("mesh.layers_per_stage: \"{}\" places {} layers, the model has {}", text, total, num_layers);
  return ranges_of(counts);
}

}  // namespace weft
