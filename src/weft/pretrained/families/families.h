// The families of Hugging Face models, one file for each kind of decoder, and what several of them share.
#pragma once
#include "weft/pretrained/hf_family.h"

namespace weft {

std::vector<HfFamily> hf_llama_families();  // and what came of it: Mistral, Mixtral, Phi, CWM, InternLM3
std::vector<HfFamily> hf_llama4_families();
std::vector<HfFamily> hf_qwen_families();
std::vector<HfFamily> hf_olmo_families();
std::vector<HfFamily> hf_gemma_families();
std::vector<HfFamily> hf_deepseek_families();
std::vector<HfFamily> hf_gpt2_families();
std::vector<HfFamily> hf_neox_families();
std::vector<HfFamily> hf_gptj_families();  // and Phi-1 and 2
std::vector<HfFamily> hf_nanochat_families();
std::vector<HfFamily> hf_falcon_families();
std::vector<HfFamily> hf_falcon_h1_families();
std::vector<HfFamily> hf_afmoe_families();
std::vector<HfFamily> hf_apertus_families();
std::vector<HfFamily> hf_bamba_families();
std::vector<HfFamily> hf_olmo_hybrid_families();
std::vector<HfFamily> hf_mimo_families();
std::vector<HfFamily> hf_cohere_families();
std::vector<HfFamily> hf_eurobert_families();
std::vector<HfFamily> hf_exaone_families();
std::vector<HfFamily> hf_glm_families();
std::vector<HfFamily> hf_gpt_oss_families();
std::vector<HfFamily> hf_granite_families();
std::vector<HfFamily> hf_helium_families();
std::vector<HfFamily> hf_hunyuan_families();
std::vector<HfFamily> hf_kimi_families();
std::vector<HfFamily> hf_kolibri_families();
std::vector<HfFamily> hf_lfm2_families();
std::vector<HfFamily> hf_minicpm_families();
std::vector<HfFamily> hf_minimax_families();
std::vector<HfFamily> hf_nemotron_families();
std::vector<HfFamily> hf_nemotron_h_families();
std::vector<HfFamily> hf_opt_families();
std::vector<HfFamily> hf_seed_oss_families();
std::vector<HfFamily> hf_smollm_families();
std::vector<HfFamily> hf_stablelm_families();
std::vector<HfFamily> hf_starcoder_families();

// Of two names of a key the one that a file has; the first where it has neither, and to write.
const char* either(const HfFields& fields, const char* key, const char* other);

// As it is read, before the configuration is complete.
int64_t width_of_head(const ModelConfig& config);

// What Llama and most of its relatives call the shape of a model.
void common_shape_fields(HfFields& fields, ModelConfig& config, int64_t absent_ffn = 0);

// The same, and norms, the head and the activation of relatives whose norms are RMSNorms. What a file without a key
// means:
struct Absent {
  int64_t head_dim = 0;  // 0: the width of the model over its heads
  int64_t kv_heads = 0;  // 0: as many as there are heads
  double norm_eps = 1e-6;
  bool is_tied = false;
  int64_t ffn = 0;  // 0: it must be there
  std::string_view activation = "silu";
};
void llama_shape_fields(HfFields& fields, ModelConfig& config, const Absent& absent = {});

// attention_bias: of all four projections.
void attention_bias_field(HfFields& fields, ModelConfig& config);

// "silu" and its like.
void activation_field(HfFields& fields, const char* key, Activation& activation, std::string_view otherwise);

// Of scores or logits: null for none; `otherwise`: what a file without the key means, 0 for none.
void cap_field(HfFields& fields, const char* key, float& cap, double otherwise);

// rope_theta, and rope_scaling, or rope_parameters which newer versions have in place of the two; and how many
// elements of a head turn, as `partial_key`, unless that is null; `share` is what a file without it means.
void rope_fields(HfFields& fields, ModelConfig& config, double theta, const char* partial_key = nullptr,
                 double share = 1);
// The same as rope_parameters alone, among which lies what queries are scaled by (RopeScaling::query_beta).
void scaled_query_rope_fields(HfFields& fields, ModelConfig& config, double theta);
// rope_parameters of both kinds of layers, as newer versions have it; false: there are none such to read.
bool rope_fields_by_layer(HfFields& fields, ModelConfig& config, double theta, double local_theta);
void write_rope_by_layer(HfFields& fields, ModelConfig& config, double theta);

// sliding_window with nothing else to say: all layers are local, or none. absent: what a file without the key means.
void window_field(HfFields& fields, ModelConfig& config, int64_t absent = 0);
// A list that calls every layer one of two kinds, which is there: whether each is the first.
std::vector<bool> layers_that_are(const HfFields& fields, const ModelConfig& config, const char* key,
                                  std::string_view kind, std::string_view other);
// layer_types, where it is there: the window's layers are those that it calls "sliding_attention".
void layer_types_field(HfFields& fields, ModelConfig& config);
// sliding_window, and layer_types: where a file has none, every fourth layer is global, from the first on.
void first_of_four_global_fields(HfFields& fields, ModelConfig& config, int64_t absent_window);
// max_window_layers, and layer_types: of a model with a window, the layers from that one on are local.
void last_layers_local_fields(HfFields& fields, ModelConfig& config, int64_t absent);
// layer_types, of models with states: the names of layers that attend, and of the others. False: a file that is read
// has none.
bool attending_layers_field(HfFields& fields, ModelConfig& config, std::string_view attends,
                            std::string_view is_recurrent);
// sliding_window, null for none, and layer_types; where that is absent, every n-th layer is global: as `pattern_key`
// says, unless that is null, or else 4. Gives whether there is a window, perhaps of no layer.
bool window_pattern_fields(HfFields& fields, ModelConfig& config, const char* pattern_key);
// Layers that see the whole text know no positions: where there is a window, all but the local ones.
void unrotated_global_layers(HfFields& fields, ModelConfig& config, bool has_window);
// no_rope_layers, 1 for each layer that turns; without it no_rope_layer_interval says which do not.
void unrotated_layers_fields(HfFields& fields, ModelConfig& config);

// What layers of Mamba-2 are made of: as wide as mamba_expand says, or as mamba_d_ssm does.
void mamba_fields(HfFields& fields, ModelConfig& config);
void mamba_fields_by_width(HfFields& fields, ModelConfig& config);

// first_k_dense_replace, and mlp_layer_types of later versions. absent: what a file with neither means.
void sparse_layers_fields(HfFields& fields, ModelConfig& config, int64_t absent);
// router_aux_loss_coef, which the library adds to the loss only where output_router_logits is true: elsewhere, as in
// nearly all published files, it is 0.
void balance_loss_field(HfFields& fields, ModelConfig& config, double absent = 0.001);
// Shared experts as one, as wide as `key` says they are together, of experts of moe_intermediate_size.
void shared_width_field(HfFields& fields, ModelConfig& config, const char* key, int64_t otherwise);
// What DeepSeek-V2 calls latent attention, and who follows it: its shape, but for how it turns, and its tensors.
// absent: what a file without the key means; 0 of values: it must be there.
void latent_attention_fields(HfFields& fields, ModelConfig& config, int64_t absent_query_rank,
                             int64_t absent_value_dim = 0);
const std::vector<NameRow>& latent_attention_names(const ModelConfig& config);
// What DeepSeek-V3 calls experts, and who follows it. What a file without a key means:
struct AbsentExperts {
  int64_t shared = 0, first_dense = 0;
  double scale = 1;
  int64_t groups = 1, groups_per_token = 1;
};
void deepseek_expert_fields(HfFields& fields, ModelConfig& config, const AbsentExperts& absent = {});

// What DeepSeek-V3 calls the part that predicts a token further on, and who follows it.
std::span<const NameRow> deepseek_mtp_names();

// Names that most relatives of Llama share: of the embedding, the last norm and the head; of attention's projections;
// of a gated feed-forward part; of experts.
std::span<const NameRow> outer_names();
std::span<const NameRow> attention_names();
std::span<const NameRow> paired_attention_names();  // whose rotary positions turn neighbours
std::span<const NameRow> gated_names();
std::span<const NameRow> expert_names();
std::span<const NameRow> mamba_names();         // of layers of Mamba-2
std::span<const NameRow> feed_forward_names();  // of the other parts where such layers call them so
std::span<const NameRow> pre_norm_names();
std::span<const NameRow> post_norm_names();
const std::vector<NameRow>& llama_names(const ModelConfig& config);  // all of these but paired ones

// A family that Hugging Face's library calls what weft calls it.
HfFamily llama_family(std::string_view name, std::string_view architecture, void (*fields)(HfFields&, ModelConfig&),
                      const std::vector<NameRow>& (*names)(const ModelConfig&) = llama_names);

}  // namespace weft
