// A small model in a GGUF file, written as llama.cpp lays it out, with weights that are a function of their names.
#pragma once
#include <algorithm>
#include <map>
#include <mutex>
#include <span>

#include "pretrained/model_on_ranks.h"
#include "weft/base/philox.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/formats/gguf_writer.h"

namespace weft {

// As llama.cpp's converter names what Hugging Face's library saves.
struct NamedInGguf {
  std::string param, gguf;
};
inline std::vector<NamedInGguf> names_in_gguf(const ModelConfig& c) {
  std::vector<NamedInGguf> names{{"embedding.weight", "token_embd.weight"},
                                 {"final_norm.weight", "output_norm.weight"}};
  if (!c.tie_embeddings) names.push_back({"head.weight", "output.weight"});
  for (int64_t i = 0; i < c.layers; ++i) {
    const auto add = [&](const char* param, const char* gguf) {
      names.push_back({fmt::format("layers.{}.{}.weight", i, param), fmt::format("blk.{}.{}.weight", i, gguf)});
    };
    add("attention_norm", "attn_norm"), add("mlp_norm", "ffn_norm");
    add("attention.query", "attn_q"), add("attention.key", "attn_k"), add("attention.value", "attn_v");
    add("attention.output", "attn_output");
    if (c.qk_norm) add("attention.query_norm", "attn_q_norm"), add("attention.key_norm", "attn_k_norm");
    if (c.experts > 0) {
      add("moe.router", "ffn_gate_inp"), add("moe.experts.gate", "ffn_gate_exps");
      add("moe.experts.up", "ffn_up_exps"), add("moe.experts.down", "ffn_down_exps");
    } else {
      add("mlp.gate", "ffn_gate"), add("mlp.up", "ffn_up"), add("mlp.down", "ffn_down");
    }
  }
  return names;
}

// The first `count` values of a parameter, made once for all cases and ranks.
inline std::span<const float> values_of(const std::string& param, int64_t count) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int64_t>, std::vector<float>> made;
  const std::lock_guard lock(mutex);
  std::vector<float>& values = made[{param, count}];
  if (values.empty()) {
    const bool is_norm = param.ends_with("norm.weight");
    values.resize(size_t(count));
    for (uint64_t i = 0, key = name_hash(param); i < values.size(); ++i) {
      const float deviate = philox_normal(7, key, i);
      values[i] = is_norm ? 1 + 0.1f * deviate : 0.06f * deviate;
    }
  }
  return values;
}

// The place in a file of row `row` of queries or keys: of each head, element j of half h comes at 2 j + h.
inline int64_t paired(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim, inside = row % head_dim, half = head_dim / 2;
  return head * head_dim + 2 * (inside % half) + inside / half;
}

struct GgufCase {
  std::string architecture;
  GgmlType type;
  bool has_experts, is_tied;
  MeshShape mesh = {};
  int64_t hidden = 64, ffn = 96, expert_ffn = 32;
};

inline ModelConfig config_of(const GgufCase& c) {
  ModelConfig m = family_defaults("llama");
  m.layers = 2, m.hidden = c.hidden, m.heads = 4, m.kv_heads = 2, m.head_dim = c.hidden / 4, m.ffn = c.ffn,
  m.vocab = 40, m.context = 32;
  m.norm_eps = 1e-6f, m.rope_theta = 5000;
  m.tie_embeddings = c.is_tied;
  m.qk_norm = c.architecture != "llama";
  if (c.has_experts) m.experts = 3, m.experts_per_token = 2, m.expert_ffn = c.expert_ffn;
  complete(m);
  return m;
}

inline void write_gguf(const GgufCase& c, const std::string& path) {
  const ModelConfig m = config_of(c);
  std::map<std::string, Shape> shapes;
  Decoder whole(m);
  for (const Param* p : whole.params()) shapes.emplace(p->name, p->shape);
  GgufMetadata metadata;
  const auto key = [&](const char* name) { return c.architecture + "." + name; };
  metadata.set_string("general.architecture", c.architecture);
  metadata.set<uint32_t>(key("block_count"), uint32_t(m.layers));
  metadata.set<uint32_t>(key("embedding_length"), uint32_t(m.hidden));
  metadata.set<uint32_t>(key("attention.head_count"), uint32_t(m.heads));
  metadata.set<uint32_t>(key("attention.head_count_kv"), uint32_t(m.kv_heads));
  metadata.set<uint32_t>(key("attention.key_length"), uint32_t(m.head_dim));
  metadata.set<uint32_t>(key("feed_forward_length"), uint32_t(m.ffn));
  metadata.set<uint32_t>(key("context_length"), uint32_t(m.context));
  metadata.set<float>(key("attention.layer_norm_rms_epsilon"), m.norm_eps);
  metadata.set<float>(key("rope.freq_base"), float(m.rope_theta));
  if (m.experts > 0) {
    metadata.set<uint32_t>(key("expert_count"), uint32_t(m.experts));
    metadata.set<uint32_t>(key("expert_used_count"), uint32_t(m.experts_per_token));
    metadata.set<uint32_t>(key("expert_feed_forward_length"), uint32_t(m.expert_ffn));
  }
  const std::vector<NamedInGguf> names = names_in_gguf(m);
  std::vector<GgufInfo> infos;
  for (const auto& [param, gguf] : names) {
    const Shape& shape = shapes.at(param);
    infos.push_back({gguf, shape.rank() == 1 ? GgmlType::f32 : c.type, shape});
  }
  GgufWriter writer(FileSystem::real(), path, infos, metadata);
  for (size_t i = 0; i < names.size(); ++i) {
    const Shape& shape = infos[i].shape;
    const int64_t cols = shape[-1], rows = shape.numel() / cols;
    const bool turns = c.architecture == "llama" && (names[i].param.ends_with("attention.query.weight") ||
                                                     names[i].param.ends_with("attention.key.weight"));
    const std::span<const float> exact = values_of(names[i].param, shape.numel());
    std::vector<float> values(exact.size());
    for (int64_t r = 0; r < rows; ++r)
      std::ranges::copy(exact.subspan(size_t(r * cols), size_t(cols)),
                        values.begin() + (turns ? paired(r, m.head_dim) : r) * cols);
    std::vector<std::byte> blocks(infos[i].bytes());
    quantize(infos[i].type, values, blocks);
    writer.write(blocks);
  }
  writer.finish();
}

// To what is left of values in a file.
inline void round(std::span<float> values, GgmlType type) {
  std::vector<std::byte> blocks(*ggml_bytes(type, values.size()));
  quantize(type, values, blocks);
  dequantize(type, blocks, values);
}

// The values that are left in a file, on one rank.
inline void fill_as_written(ForwardModel& m, GgmlType type) {
  for (Param* p : m.part().params()) {
    const std::span<float> values(p->value.data<float>(), size_t(p->shape.numel()));
    std::ranges::copy(values_of(p->name, p->shape.numel()), values.begin());
    if (p->shape.rank() > 1) round(values, type);
    p->value_changed();
  }
}

}  // namespace weft
