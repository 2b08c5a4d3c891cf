// The first layer of the rarer kind says how often it comes.
#include "weft/pretrained/local_layers.h"

#include <algorithm>
#include <ranges>

namespace weft {

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
  const auto layers = std::views::iota(int64_t(0), c.layers);
  if (std::ranges::all_of(layers, [&](int64_t i) { return is_local[size_t(i)] == c.is_local(i); })) return;
  c.first_local_layer = c.global_every = 0;
  for (const int64_t i : layers)
    if (!is_local[size_t(i)]) c.global_layers.push_back(i);
}

void set_unrotated_layers(ModelConfig& c, const std::vector<bool>& is_rotated) {
  const auto layers = std::views::iota(int64_t(0), c.layers);
  const auto first = std::ranges::find(is_rotated, false);
  c.unrotated_layers.clear(), c.unrotated_every = 0;
  if (first == is_rotated.end()) return;
  c.unrotated_every = first - is_rotated.begin() + 1;
  if (std::ranges::all_of(layers, [&](int64_t i) { return is_rotated[size_t(i)] == c.is_rotated(i); })) return;
  c.unrotated_every = 0;
  for (const int64_t i : layers)
    if (!is_rotated[size_t(i)]) c.unrotated_layers.push_back(i);
}

void set_attending_layers(ModelConfig& c, const std::vector<bool>& attends) {
  const auto layers = std::views::iota(int64_t(0), c.layers);
  c.attention_layers.clear(), c.attention_every = 0;
  if (std::ranges::all_of(layers, [&](int64_t i) { return attends[size_t(i)] || !c.has_mixer(i); })) return;
  c.attention_every = std::ranges::find(attends, true) - attends.begin() + 1;
  if (std::ranges::all_of(layers, [&](int64_t i) { return attends[size_t(i)] == c.attends(i); })) return;
  for (int64_t i = 0; i < c.layers; ++i)
    if (attends[size_t(i)]) c.attention_layers.push_back(i);
}

void set_expert_layers(ModelConfig& c, const std::vector<bool>& has_experts) {
  const auto layers = std::views::iota(int64_t(0), c.layers);
  c.expert_layers.clear();
  c.first_dense_layers = std::ranges::find(has_experts, true) - has_experts.begin();
  if (std::ranges::all_of(layers, [&](int64_t i) { return has_experts[size_t(i)] == (i >= c.first_dense_layers); }))
    return;
  c.first_dense_layers = 0;
  for (const int64_t i : layers)
    if (has_experts[size_t(i)]) c.expert_layers.push_back(i);
}

}  // namespace weft
