// What Megatron-LM's arguments mean, where their values are not taken as they are: for the table in megatron.cpp.
#pragma once
#include "weft/plan/imports/translation.h"

namespace weft::plan::megatron {

// "--num-layers", "num_layers" and "language_model.num_layers" are one argument.
std::string normal(std::string_view key);

// Flags: what they set when they are given.
template <bool value>
void set_flag(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, value);
}

// Each is a Take.
void set_swiglu(Translation& t, const ConfigEntry& entry, std::string_view target);
void set_quick_geglu(Translation& t, const ConfigEntry& entry, std::string_view target);
void set_squared_relu(Translation& t, const ConfigEntry& entry, std::string_view target);
// What differs of products in fp8.
inline constexpr std::string_view kOneFp8 =
    "weft's fp8 is E4M3 in groups of 128 in all three products, scaled by what is in a group now";
void take_fp8_format(Translation& t, const ConfigEntry& entry, std::string_view target);
void set_short_gradients(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_gradients(Translation& t, const ConfigEntry& entry, std::string_view target);
void set_precision(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_position(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_norm(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_decay(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_min_lr(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_optimizer(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_context_mode(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_score(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_rotary_percent(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_groups(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_attention_dropout(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_init(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_samples(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_warmup_share(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_decay_length(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_virtual_stage(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_virtual_stages(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_sharded_optimizer(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_torch_fsdp(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_strategy(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_recompute(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_old_recompute(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_layer_kinds(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_shared_experts(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_balance(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_query_dim(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_rope_scaling(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_split(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_vocabulary_file(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_data(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_load(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_timeout(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_offload(Translation& t, const ConfigEntry& entry, std::string_view target);
void take_activation_name(Translation& t, const ConfigEntry& entry, std::string_view target);

}  // namespace weft::plan::megatron
