// Models in GGUF files: written here as llama.cpp lays them out, they say what the same weights say by weft's names.
#include <map>

#include "base/temporary_folder.h"
#include "pretrained/model_on_ranks.h"
#include "weft/base/philox.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/formats/gguf_writer.h"

namespace weft {
namespace {

// As llama.cpp's converter names what Hugging Face's library saves.
struct Named {
  std::string param, gguf;
};
std::vector<Named> names_in_gguf(const ModelConfig& c) {
  std::vector<Named> names{{"embedding.weight", "token_embd.weight"}, {"final_norm.weight", "output_norm.weight"}};
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

float value_of(const std::string& param, int64_t i) {
  const float deviate = float(philox_normal(7, name_hash(param), uint64_t(i)));
  return param.ends_with("norm.weight") ? 1 + 0.1f * deviate : 0.2f * deviate;
}

// The place in a file of row `row` of queries or keys: of each head, element j of half h comes at 2 j + h.
int64_t paired(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim, inside = row % head_dim, half = head_dim / 2;
  return head * head_dim + 2 * (inside % half) + inside / half;
}

struct Case {
  std::string architecture;
  GgmlType type;
  bool has_experts, is_tied;
  MeshShape mesh = {};
};

ModelConfig config_of(const Case& c) {
  ModelConfig m = family_defaults("llama");
  m.layers = 2, m.hidden = 64, m.heads = 4, m.kv_heads = 2, m.head_dim = 16, m.ffn = 96, m.vocab = 40, m.context = 32;
  m.norm_eps = 1e-6f, m.rope_theta = 5000;
  m.tie_embeddings = c.is_tied;
  m.qk_norm = c.architecture != "llama";
  if (c.has_experts) m.experts = 3, m.experts_per_token = 2, m.expert_ffn = 32;
  complete(m);
  return m;
}

void write_gguf(const Case& c, const std::string& path) {
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
  const std::vector<Named> names = names_in_gguf(m);
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
    std::vector<float> values(size_t(shape.numel()));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < cols; ++k)
        values[size_t((turns ? paired(r, m.head_dim) : r) * cols + k)] = value_of(names[i].param, r * cols + k);
    std::vector<std::byte> blocks(infos[i].bytes());
    quantize(infos[i].type, values, blocks);
    writer.write(blocks);
  }
  writer.finish();
}

// To what is left of values in a file.
void round(std::span<float> values, GgmlType type) {
  std::vector<std::byte> blocks(*ggml_bytes(type, values.size()));
  quantize(type, values, blocks);
  dequantize(type, blocks, values);
}

class GgufModelTest : public testing::TestWithParam<Case> {};

TEST_P(GgufModelTest, SaysWhatItsWeightsSay) {
  const Case& c = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  write_gguf(c, path);
  const auto source = open_model(path);
  EXPECT_EQ(source->kind(), SourceKind::gguf);
  const ModelConfig config = config_of(c);
  const std::vector<int32_t> ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 35};
  const Logits want = logits_on(
      config, {},
      [&](ForwardModel& m) {
        for (Param* p : m.part().params()) {
          const std::span<float> values(p->value.data<float>(), size_t(p->shape.numel()));
          for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(p->name, int64_t(i));
          if (p->shape.rank() > 1) round(values, c.type);
          p->value_changed();
        }
      },
      ids);
  const Logits got = logits_on(source->config(), c.mesh, [&](ForwardModel& m) { m.load(*source); }, ids);
  EXPECT_LT(worst_difference(got, want), 1e-5);
}

const Case kCases[] = {
    {"llama", GgmlType::f32, false, false},
    {"llama", GgmlType::f16, false, true, {.tp = 2}},
    {"llama", GgmlType::q8_0, false, false, {.pp = 2}},
    {"llama", GgmlType::f32, true, false, {.shard = 2, .ep = 2}},
    {"qwen3", GgmlType::f32, false, true},
    {"qwen3", GgmlType::q8_0, false, false, {.tp = 2}},
    {"qwen3moe", GgmlType::f32, true, false, {.shard = 2, .tp = 2, .ep = 2}},
};
INSTANTIATE_TEST_SUITE_P(Files, GgufModelTest, testing::ValuesIn(kCases), [](const auto& test) {
  const Case& c = test.param;
  return fmt::format("{}{}{}_{}_{}", c.architecture, c.has_experts ? "_experts" : "", c.is_tied ? "_tied" : "",
                     weft::name_of(c.type), name_of_mesh(c.mesh));
});

std::string refusal(const std::function<void(GgufMetadata&)>& change) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  GgufMetadata metadata;
  change(metadata);
  GgufWriter(FileSystem::real(), path, {}, metadata).finish();
  try {
    open_model(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing refused";
}

TEST(GgufModelErrorsTest, NameWhatIsMissing) {
  EXPECT_NE(refusal([](GgufMetadata&) {}).find("general.architecture"), std::string::npos);
  const std::string unknown = refusal([](GgufMetadata& m) { m.set_string("general.architecture", "mamba"); });
  EXPECT_NE(unknown.find("\"mamba\""), std::string::npos) << unknown;
  const std::string incomplete = refusal([](GgufMetadata& m) { m.set_string("general.architecture", "llama"); });
  EXPECT_NE(incomplete.find("llama.block_count"), std::string::npos) << incomplete;
}

}  // namespace
}  // namespace weft
