// The first layer of the rarer kind says how often it comes.
#include "weft/pretrained/local_layers.h"

#include <algorithm>
#include <ranges>

namespace weft {
namespace {

template <class Rule>
bool follows(const std::vector<bool>& told, const Rule& rule) {  // rule(layer): what it says of a layer
  return std::ranges::all_of(std::views::iota(size_t(0), told.size()),
                             [&](size_t i) { return told[i] == rule(int64_t(i)); });
}

std::vector<int64_t> layers_told(bool kind, const std::vector<bool>& told) {
  std::vector<int64_t> layers;
  for (size_t i = 0; i < told.size(); ++i)
    if (told[i] == kind) layers.push_back(int64_t(i));
  return layers;
}

}  // namespace

void set_local_layers(ModelConfig& c, const std::vector<bool>& is_local) {
  const auto begin = is_local.begin(), end = is_local.end();
  const auto first = std::find(begin, end, true);
  c.global_layers.clear();
  if (first == end) {
    c.window = 0;
    return;
  }
  const auto global = std::find(first, end, false);
  const int64_t every = global == end ? 0 : global - begin + 1;
  if (c.global_every == 0 || every > 0) c.global_every = every;
  c.first_local_layer = first - begin;
  if (follows(is_local, [&](int64_t i) { return c.is_local(i); })) return;
  c.first_local_layer = c.global_every = 0;
  c.global_layers = layers_told(false, is_local);
}

void set_unrotated_layers(ModelConfig& c, const std::vector<bool>& is_rotated) {
  const auto first = std::ranges::find(is_rotated, false);
  c.unrotated_layers.clear(), c.unrotated_every = 0;
  if (first == is_rotated.end()) return;
  c.unrotated_every = first - is_rotated.begin() + 1;
  if (follows(is_rotated, [&](int64_t i) { return c.is_rotated(i); })) return;
  c.unrotated_every = 0;
  c.unrotated_layers = layers_told(false, is_rotated);
}

void set_attending_layers(ModelConfig& c, const std::vector<bool>& attends) {
  const auto layers = std::views::iota(int64_t(0), c.layers);
  c.attention_layers.clear(), c.attention_every = 0;
  if (std::ranges::all_of(layers, [&](int64_t i) { return attends[size_t(i)] || !c.has_mixer(i); })) return;
  c.attention_every = std::ranges::find(attends, true) - attends.begin() + 1;
  if (follows(attends, [&](int64_t i) { return c.attends(i); })) return;
  c.attention_layers = layers_told(true, attends);
}

void set_expert_layers(ModelConfig& c, const std::vector<bool>& has_experts) {
  c.expert_layers.clear();
  c.first_dense_layers = std::ranges::find(has_experts, true) - has_experts.begin();
  if (follows(has_experts, [&](int64_t i) { return i >= c.first_dense_layers; })) return;
  c.first_dense_layers = 0;
  c.expert_layers = layers_told(true, has_experts);
}

}  // namespace weft
