// GGUF models: a table of names for each architecture, and keys that begin with its name.
#include "weft/pretrained/gguf_model.h"

#include <algorithm>

#include "weft/base/nearest.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/pretrained/held_blocks.h"

namespace weft {
namespace {

constexpr int64_t kMostOfAnything = int64_t(1) << 24;
constexpr Layout kPaired{.is_paired = true};

// llama.cpp turns neighbours of a head where Hugging Face turns its halves, so its files of Llama hold queries and
// keys pair by pair; those of later architectures do not.
constexpr NameRow kLlamaNames[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_q", kPaired},
    {"layers.#.attention.key", "blk.#.attn_k", kPaired},
    {"layers.#.attention.value", "blk.#.attn_v"},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"layers.#.moe.router", "blk.#.ffn_gate_inp"},
    {"layers.#.moe.experts.gate", "blk.#.ffn_gate_exps"},
    {"layers.#.moe.experts.up", "blk.#.ffn_up_exps"},
    {"layers.#.moe.experts.down", "blk.#.ffn_down_exps"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};
constexpr NameRow kQwenNames[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_q"},
    {"layers.#.attention.key", "blk.#.attn_k"},
    {"layers.#.attention.value", "blk.#.attn_v"},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.attention.query_norm", "blk.#.attn_q_norm"},
    {"layers.#.attention.key_norm", "blk.#.attn_k_norm"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"layers.#.moe.router", "blk.#.ffn_gate_inp"},
    {"layers.#.moe.experts.gate", "blk.#.ffn_gate_exps"},
    {"layers.#.moe.experts.up", "blk.#.ffn_up_exps"},
    {"layers.#.moe.experts.down", "blk.#.ffn_down_exps"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};

struct GgufFamily {
  std::string_view architecture;  // of general.architecture
  std::span<const NameRow> names;
  bool has_qk_norm;
};
constexpr GgufFamily kFamilies[] = {
    {"llama", kLlamaNames, false},  // Mistral and Mixtral too
    {"qwen3", kQwenNames, true},
    {"qwen3moe", kQwenNames, true},
};

const GgufFamily& family_of(const GgufFile& file) {
  const std::string_view name = file.at("general.architecture").string();
  std::vector<std::string> known;
  for (const GgufFamily& f : kFamilies) {
    if (f.architecture == name) return f;
    known.emplace_back(f.architecture);
  }
  throw Error("{}: weft reads no GGUF models of architecture \"{}\"; it reads {}", file.path(), name,
              fmt::join(known, ", "));
}

std::optional<DType> dtype_of(GgmlType type) {
  switch (type) {
    case GgmlType::f32: return DType::f32;
    case GgmlType::f16: return DType::f16;
    case GgmlType::bf16: return DType::bf16;
    default: return {};
  }
}

// A tensor's elements are blocks along its rows; strides only occur where an element is a block.
class GgufTensors final : public StoredTensors {
 public:
  explicit GgufTensors(const GgufFile& file) : file_(file) {
    std::vector<StoredInfo> all;
    for (const GgufTensor& t : file.tensors()) {
      if (!can_convert(t.type))
        throw Error(
            "{}: tensor {} is {}, which weft does not convert; F32, F16, BF16, Q8_0, Q4_0 and Q2_K to Q6_K are "
            "what it reads",
            file.path(), t.name, name_of(t.type));
      all.push_back({t.name, std::string(name_of(t.type)), {t.dims.rbegin(), t.dims.rend()}, dtype_of(t.type)});
    }
    set_all(std::move(all));
  }
  const std::string& path() const override { return file_.path(); }

  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    const GgufTensor& tensor = file_.tensor(info.name);
    const auto block = int64_t(info_of(tensor.type).block);
    const Bytes bytes = file_.bytes(tensor);
    for (size_t done = 0; done < out.size();) {
      const int64_t at = first + int64_t(done) * stride, begin = at / block * block;
      const int64_t left = int64_t(out.size() - done);
      // As many whole blocks as hold what is left, a part at a time.
      const int64_t end =
          stride == 1 ? std::min(begin + kElements, (at + left + block - 1) / block * block) : begin + block;
      std::array<float, kElements> values;
      const uint64_t from = ggml_bytes(tensor.type, uint64_t(begin)).value();
      const uint64_t size = ggml_bytes(tensor.type, uint64_t(end - begin)).value();
      dequantize(tensor.type, bytes.subspan(from, size), std::span(values).first(size_t(end - begin)));
      const int64_t count = stride == 1 ? std::min(left, end - at) : 1;
      std::copy_n(values.begin() + (at - begin), count, out.begin() + int64_t(done));
      done += size_t(count);
    }
  }
  std::optional<StoredBlocks> blocks(const StoredInfo& info) const override {
    const GgufTensor& tensor = file_.tensor(info.name);
    for (const BlockType type : {BlockType::q8_0, BlockType::q4_0, BlockType::q4_k, BlockType::q6_k})
      if (ggml_type_of(type) == tensor.type) return StoredBlocks{type, file_.bytes(tensor)};
    return {};
  }

 private:
  static constexpr int64_t kElements = 1024;  // a multiple of every block
  const GgufFile& file_;
};

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  const GgufFamily& family = family_of(file);
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", family.architecture, name); };
  const auto size = [&](std::string_view name) { return file.at(key(name)).integer(1, kMostOfAnything); };
  const auto size_or = [&](std::string_view name, int64_t otherwise) {
    return file.integer_or(key(name), otherwise, 0, kMostOfAnything);
  };
  ModelConfig c = family_defaults("llama");
  c.layers = size("block_count"), c.hidden = size("embedding_length");
  c.heads = size("attention.head_count"), c.kv_heads = size_or("attention.head_count_kv", c.heads);
  c.head_dim = size_or("attention.key_length", 0);
  c.ffn = size_or("feed_forward_length", 0);
  c.context = size("context_length");
  c.norm_eps = float(file.at(key("attention.layer_norm_rms_epsilon")).number());
  c.rope_theta = file.number_or(key("rope.freq_base"), 10000);
  c.rotary_dim = size_or("rope.dimension_count", 0);
  c.qk_norm = family.has_qk_norm;
  c.experts = size_or("expert_count", 0);
  if (c.experts > 0) {
    c.experts_per_token = size("expert_used_count");
    c.expert_ffn = size_or("expert_feed_forward_length", c.ffn);
    if (c.ffn == 0) c.ffn = c.expert_ffn;
  }
  c.tie_embeddings = !file.find_tensor("output.weight");
  const std::vector<int64_t>& embedding = file.tensor("token_embd.weight").dims;
  if (embedding.size() != 2) throw Error("{}: token_embd.weight has {} dims, not 2", file.path(), embedding.size());
  c.vocab = embedding[1];
  const std::string scaling = file.string_or(key("rope.scaling.type"), "none");
  if (scaling != "none")
    throw Error("{}: {} = \"{}\" is not read yet", file.path(), key("rope.scaling.type"), scaling);
  try {
    complete(c);
  } catch (const UsageError& e) {
    throw Error("{}: {}", file.path(), e.what());
  }
  return c;
}

std::vector<ParamNames> gguf_names(const GgufFile& file, const ModelConfig& config) {
  return names_of(config, family_of(file).names);
}

std::unique_ptr<StoredTensors> stored_tensors(const GgufFile& file) { return std::make_unique<GgufTensors>(file); }

}  // namespace weft
