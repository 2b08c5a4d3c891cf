// The architectures of GGUF files, one file for each kind of decoder, and what several of them share. Keys are those
// that llama.cpp reads.
#pragma once
#include "weft/pretrained/gguf_family.h"

namespace weft {

std::vector<GgufFamily> gguf_llama_families();  // and what came of it: Granite, SmolLM, ERNIE, Seed-OSS, Arcee
std::vector<GgufFamily> gguf_llama4_families();
std::vector<GgufFamily> gguf_qwen_families();
std::vector<GgufFamily> gguf_phi_families();
std::vector<GgufFamily> gguf_gemma_families();
std::vector<GgufFamily> gguf_olmo_families();
std::vector<GgufFamily> gguf_cohere_families();
std::vector<GgufFamily> gguf_falcon_h1_families();
std::vector<GgufFamily> gguf_afmoe_families();
std::vector<GgufFamily> gguf_exaone_families();
std::vector<GgufFamily> gguf_glm_families();
std::vector<GgufFamily> gguf_gpt_oss_families();
std::vector<GgufFamily> gguf_hunyuan_families();
std::vector<GgufFamily> gguf_kimi_families();
std::vector<GgufFamily> gguf_minimax_families();
std::vector<GgufFamily> gguf_lfm2_families();
std::vector<GgufFamily> gguf_nemotron_h_families();
std::vector<GgufFamily> gguf_deepseek_families();
std::vector<GgufFamily> gguf_layer_norm_families();  // GPT-2, StarCoder2, StableLM and Nemotron

// What nearly all call the shape of a model; of its heads and rotary positions; and both with the eps of RMSNorms, or
// of LayerNorms.
void gguf_shape_fields(GgufFields& fields, ModelConfig& config);
void gguf_head_fields(GgufFields& fields, ModelConfig& config);
void gguf_rms_fields(GgufFields& fields, ModelConfig& config);
void gguf_layer_norm_fields(GgufFields& fields, ModelConfig& config);

// Scaled rotary positions; has_factors: also those that are told pair by pair, by tensors.
void gguf_scaling_fields(GgufFields& fields, ModelConfig& config, bool has_factors = false);

// All that a relative of Llama says whose projections may have biases.
void gguf_biased_fields(GgufFields& fields, ModelConfig& config);

// The local layers: all but every n-th, as a number, or told one by one. absent, every: what a file that does not say
// means. knows_windows: llama.cpp sees the windows of such models.
void gguf_window_fields(GgufFields& fields, ModelConfig& config, int64_t absent, int64_t every, bool knows_windows);

// Which projections have biases, as the tensors say.
void gguf_bias_fields(const GgufFields& fields, ModelConfig& config);

// The shape of latent attention. llama.cpp attends to the latent vectors themselves, as if all heads had one key: the
// lengths that it calls a key's and a value's are theirs.
void gguf_latent_fields(GgufFields& fields, ModelConfig& config);
std::span<const NameRow> gguf_latent_names(const ModelConfig& config);

void gguf_expert_fields(GgufFields& fields, ModelConfig& config);
// How they are chosen; otherwise: what a file that does not say means.
void gguf_router_field(GgufFields& fields, ModelConfig& config, RouterGate otherwise);
// Those that DeepSeek's models have beside these: that see all tokens, in groups, behind dense layers.
void gguf_deepseek_expert_fields(GgufFields& fields, ModelConfig& config, bool normalises_otherwise);
// Shared experts as one, as wide as they are together. absent: what a file without the key means.
void gguf_shared_width_field(GgufFields& fields, ModelConfig& config, int64_t absent = 0);
// What layers with states are made of; which layers these are a file says in its family's words.
void gguf_state_fields(GgufFields& fields, ModelConfig& config);
// Keys that are lists of a number for each layer, of which the largest counts in `fields_of_one`: when read, the
// lists; when written, nothing, and `fields_of_one` writes numbers in their place.
std::vector<std::vector<int64_t>> gguf_fields_by_layer(GgufFields& fields, ModelConfig& config,
                                                       std::span<const char* const> keys,
                                                       void (*fields_of_one)(GgufFields&, ModelConfig&));
// The same of attention.head_count_kv, 0 in layers with states: the others attend.
void gguf_attending_layers_fields(GgufFields& fields, ModelConfig& config,
                                  void (*fields_of_one)(GgufFields&, ModelConfig&));
// Layers that predict a token further on count as blocks, and are no layers of the model.
void gguf_further_layers_field(GgufFields& fields, ModelConfig& config);

// A table names more than a model may have; what a file of the architecture can hold is what its keys say. llama.cpp
// turns neighbours of a head where Hugging Face turns its halves, so its files of Llama, OLMo and others hold queries
// and keys pair by pair; those of most later architectures do not.
std::span<const NameRow> gguf_paired_names(const ModelConfig& config);
std::span<const NameRow> gguf_halved_names(const ModelConfig& config);
// Before one of them: query, key and value in one tensor; gate and up in one.
std::span<const NameRow> gguf_fused_heads();
std::span<const NameRow> gguf_fused_gate();
// Of layers of Mamba-2.
std::span<const NameRow> gguf_mamba_names();
// Norms of which llama.cpp multiplies by the weights as they are, Hugging Face's library by one more.
std::span<const NameRow> gguf_offset_norms();

}  // namespace weft
