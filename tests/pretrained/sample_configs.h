// A small config.json of every family that is read.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/base/file.h"

namespace weft {

struct SampleConfig {
  const char* name;
  const char* json;
};

inline std::vector<SampleConfig> sample_configs() {
  return {
      {"llama", R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16})"},
      {"mistral", R"({"model_type": "mistral", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
        "max_position_embeddings": 16})"},
      {"qwen3", R"({"model_type": "qwen3", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
        "max_position_embeddings": 16, "tie_word_embeddings": true})"},
      {"mixtral", R"({"model_type": "mixtral", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 3,
        "max_position_embeddings": 16})"},
      {"qwen3_moe", R"({"model_type": "qwen3_moe", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_experts": 3,
        "num_experts_per_tok": 2, "moe_intermediate_size": 5, "max_position_embeddings": 16})"},
      {"smollm3", R"({"model_type": "smollm3", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16})"},
      {"llama4", R"({"model_type": "llama4_text", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6,
        "intermediate_size_mlp": 12, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 4, "num_local_experts": 3, "interleave_moe_layer_step": 2, "attention_chunk_size": 4,
        "max_position_embeddings": 16})"},
      {"exaone4", R"({"model_type": "exaone4", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16})"},
      {"olmo3", R"({"model_type": "olmo3", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16})"},
      {"gpt2", R"({"model_type": "gpt2", "vocab_size": 11, "n_embd": 8, "n_layer": 2, "n_head": 2,
        "n_positions": 16})"},
  };
}

// One of them, or that of a golden model.
inline nlohmann::json sample(const std::string& name) {
  for (const SampleConfig& c : sample_configs())
    if (name == c.name) return nlohmann::json::parse(c.json);
  const std::string golden = fmt::format("{}/tests/pretrained/golden/{}.json", WEFT_SOURCE_DIR, name);
  return nlohmann::json::parse(read_file(golden, uint64_t(1) << 20))["config"];
}

}  // namespace weft
