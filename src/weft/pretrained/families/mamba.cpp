// Layers of Mamba-2 as Granite, Bamba and Falcon-H1 have them.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_mamba {
namespace {

constexpr const char *kHeads = "mamba_n_heads", *kExpand = "mamba_expand", *kHeadDim = "mamba_d_head";

// As many values as the keys say, over all heads.
void read_value_dim(HfFields& f, ModelConfig& c, int64_t values, const char* told_as) {
  if (c.state_heads <= 0 || values % c.state_heads != 0) f.refuse(kHeads, fmt::format("it must divide {}", told_as));
  c.state_value_dim = values / c.state_heads;
  if (!f.has(kHeadDim) || f.from().at(kHeadDim).is_string()) return;  // "auto"
  int64_t told = 0;
  f.size(kHeadDim, told);
  if (told != c.state_value_dim) f.refuse(kHeadDim, fmt::format("heads must be {} wide together", told_as));
}

// Steps that are limited are steps of another rule.
void unlimited_steps(const HfFields& f) {
  constexpr const char* kLimit = "time_step_limit";
  if (!f.has(kLimit)) return;
  const JsonView limits = f.from().at(kLimit);
  const bool begins_at_0 = limits.size() == 2 && limits.at(0).is_number() && limits.at(0).number() == 0;
  if (!begins_at_0 || limits.at(1).is_number()) f.refuse(kLimit, "weft knows steps from 0 to infinity alone");
}

void common_fields(HfFields& f, ModelConfig& c) {
  f.size(kHeads, c.state_heads, 128);
  f.size("mamba_n_groups", c.state_key_heads, 1);
  f.size("mamba_d_state", c.state_key_dim, 256);
  f.size("mamba_d_conv", c.state_conv, 4);
  f.flag("mamba_conv_bias", c.state_conv_bias, true);
  f.only("mamba_proj_bias", false);
  if (f.is_reading())
    unlimited_steps(f);
  else
    f.to()[kHeadDim] = c.state_value_dim;
}

}  // namespace
}  // namespace hf_mamba

void mamba_fields(HfFields& f, ModelConfig& c) {
  using namespace hf_mamba;

  common_fields(f, c);
  int64_t expand = 0;
  if (!f.is_reading()) {
    const int64_t values = c.state_heads * c.state_value_dim;
    if (values % c.hidden != 0)
      throw Error("{} models have states of a multiple of {} values, but this one has {}", c.family, c.hidden,
                  values);
    expand = values / c.hidden;
  }
  f.size(kExpand, expand, 2);
  if (!f.is_reading()) return;
  constexpr int64_t kMostExpand = 64;
  if (expand > kMostExpand) f.refuse(kExpand, fmt::format("at most {} is supported", kMostExpand));
  read_value_dim(f, c, expand * c.hidden, "mamba_expand * hidden_size");
}

void mamba_fields_by_width(HfFields& f, ModelConfig& c) {
  using namespace hf_mamba;

  constexpr const char* kValues = "mamba_d_ssm";
  common_fields(f, c);
  int64_t values = c.state_heads * c.state_value_dim;
  f.size(kValues, values, 1024);
  if (f.is_reading()) read_value_dim(f, c, values, kValues);
}

std::span<const NameRow> mamba_names() {
  constexpr auto of_inputs = [](Part part) { return Layout{.part = part, .has_gates = true}; };
  constexpr auto of_convolved = [](Part part) { return Layout{.part = part, .is_convolution = true}; };
  static constexpr NameRow kRows[] = {
      {"layers.#.state.gate", "model.layers.#.mamba.in_proj", of_inputs(Part::state_gate)},
      {"layers.#.state.value", "model.layers.#.mamba.in_proj", of_inputs(Part::state_value)},
      {"layers.#.state.key", "model.layers.#.mamba.in_proj", of_inputs(Part::state_key)},
      {"layers.#.state.query", "model.layers.#.mamba.in_proj", of_inputs(Part::state_query)},
      {"layers.#.state.decay", "model.layers.#.mamba.in_proj", of_inputs(Part::state_decay)},
      {"layers.#.state.value_conv", "model.layers.#.mamba.conv1d", of_convolved(Part::state_value)},
      {"layers.#.state.key_conv", "model.layers.#.mamba.conv1d", of_convolved(Part::state_key)},
      {"layers.#.state.query_conv", "model.layers.#.mamba.conv1d", of_convolved(Part::state_query)},
      {"layers.#.state.rate", "model.layers.#.mamba.A_log"},
      {"layers.#.state.shift", "model.layers.#.mamba.dt_bias"},
      {"layers.#.state.skip", "model.layers.#.mamba.D"},
      {"layers.#.state.norm", "model.layers.#.mamba.norm"},
      {"layers.#.state.output", "model.layers.#.mamba.out_proj"},
  };
  return kRows;
}

std::span<const NameRow> feed_forward_names() {
  static constexpr NameRow kRows[] = {{"final_norm", "model.final_layernorm"},
                                      {"layers.#.mlp_norm", "model.layers.#.pre_ff_layernorm"},
                                      {"layers.#.mlp.gate", "model.layers.#.feed_forward.gate_proj"},
                                      {"layers.#.mlp.up", "model.layers.#.feed_forward.up_proj"},
                                      {"layers.#.mlp.down", "model.layers.#.feed_forward.down_proj"}};
  return kRows;
}

}  // namespace weft
