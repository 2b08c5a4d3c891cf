// The families of Hugging Face models, one file for each kind of decoder, and what several of them share.
#pragma once
#include "weft/pretrained/hf_family.h"

namespace weft {

std::vector<HfFamily> hf_llama_families();  // and what came of it: Mistral, Qwen, Mixtral, Phi
std::vector<HfFamily> hf_olmo_families();
std::vector<HfFamily> hf_gemma_families();
std::vector<HfFamily> hf_deepseek_families();
std::vector<HfFamily> hf_gpt2_families();
std::vector<HfFamily> hf_neox_families();
std::vector<HfFamily> hf_falcon_families();

// What Llama and most of its relatives call the shape of a model.
void common_shape_fields(HfFields& fields, ModelConfig& config);

// "silu" and its like.
void activation_field(HfFields& fields, const char* key, Activation& activation, std::string_view otherwise);

// rope_theta, and rope_scaling, or rope_parameters which newer versions have in place of the two; and how many
// elements of a head turn, as `partial_key`, unless that is null.
void rope_fields(HfFields& fields, ModelConfig& config, double theta, const char* partial_key = nullptr);

// sliding_window with nothing else to say: all layers are local, or none. absent: what a file without the key means.
void window_field(HfFields& fields, ModelConfig& config, int64_t absent = 0);
// layer_types, where it is there: the window's layers are those that it calls "sliding_attention".
void layer_types_field(HfFields& fields, ModelConfig& config);

// Names that most relatives of Llama share: of the embedding, the last norm and the head; of attention's projections;
// of a gated feed-forward part; of experts.
std::span<const NameRow> outer_names();
std::span<const NameRow> attention_names();
std::span<const NameRow> gated_names();
std::span<const NameRow> expert_names();
std::span<const NameRow> pre_norm_names();

}  // namespace weft
