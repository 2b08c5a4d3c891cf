// place_layers: from the last stage to the first, what is best for the layers behind one, whatever lies before it.
#include "weft/parallel/pipeline/layer_placement.h"

#include <algorithm>
#include <charconv>
#include <limits>

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

// A number to each stage and each layer that it may begin with, which may be the end.
template <class T>
class Table {
 public:
  Table(int stages, int layers, T value) : row_(size_t(layers) + 1), values_(size_t(stages + 1) * row_, value) {}
  T& at(int stage, int layer) { return values_[size_t(stage) * row_ + size_t(layer)]; }

 private:
  size_t row_;
  std::vector<T> values_;
};

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// Of the layers behind a stage's first one, on it and those behind it.
struct Placed {
  double squares = kImpossible;  // the sum of those of all stages
  int num_empty = 0;             // stages between the first and the last
  int count = 0;                 // layers on this one
};

}  // namespace

std::vector<LayerRange> place_layers(std::span<const double> layers, int num_stages, double embedding, double head) {
  const auto num_layers = int(layers.size());
  check(num_stages >= 1, "{} layers on {} stages", num_layers, num_stages);
  check(embedding >= 0 && head >= 0, "the embedding costs {}, the head {}", embedding, head);
  std::vector<double> until{0};
  for (const double layer : layers) {
    check(layer > 0, "a layer costs {}", layer);
    until.push_back(until.back() + layer);
  }
  const int last = num_stages - 1;
  const auto cost_of = [&](int stage, int begin, int end) {
    return until[size_t(end)] - until[size_t(begin)] + (stage == 0 ? embedding : 0) + (stage == last ? head : 0);
  };
  const double all = until.back() + embedding + head, same = 1e-12 * all;
  Table<double> slowest(num_stages, num_layers, kImpossible);
  slowest.at(num_stages, num_layers) = 0;
  // The first stage begins with the first layer, the last one ends with the last.
  const auto last_begin = [&](int stage) { return stage == 0 ? 0 : num_layers; };
  const auto first_end = [&](int stage, int begin) { return stage == last ? num_layers : begin; };
  for (int stage = last; stage >= 0; --stage)
    for (int begin = 0; begin <= last_begin(stage); ++begin)
      for (int end = first_end(stage, begin); end <= num_layers; ++end) {
        const double cost = cost_of(stage, begin, end);
        double& best = slowest.at(stage, begin);
        if (cost >= best) break;
        best = std::min(best, std::max(cost, slowest.at(stage + 1, end)));
      }
  const double most = slowest.at(0, 0) + same;
  Table<Placed> placed(num_stages, num_layers, Placed{});
  placed.at(num_stages, num_layers).squares = 0;
  for (int stage = last; stage >= 0; --stage)
    for (int begin = 0; begin <= last_begin(stage); ++begin)
      for (int end = first_end(stage, begin); end <= num_layers; ++end) {
        const double cost = cost_of(stage, begin, end);
        if (cost > most) break;
        const Placed& behind = placed.at(stage + 1, end);
        const bool is_empty = end == begin && stage > 0 && stage < last;
        const Placed now{behind.squares + cost * cost, behind.num_empty + is_empty, end - begin};
        Placed& best = placed.at(stage, begin);
        const double less = best.squares - now.squares;
        if (less > same * all || (less > -same * all && now.num_empty < best.num_empty)) best = now;
      }
  std::vector<int> counts;
  for (int stage = 0, begin = 0; stage < num_stages; begin += counts.back(), ++stage)
    counts.push_back(placed.at(stage, begin).count);
  return ranges_of(counts);
}

std::vector<LayerRange> place_layers(int num_layers, int num_stages, const LayerCosts& costs) {
  check(num_layers >= 0, "{} layers on {} stages", num_layers, num_stages);
  return place_layers(std::vector<double>(size_t(num_layers), costs.layer), num_stages, costs.embedding, costs.head);
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
