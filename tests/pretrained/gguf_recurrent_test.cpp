// Models with layers of the gated delta rule in GGUF files: heads in another order, blocks that this order cuts, and
// what files may hold otherwise. Nemotron 3's experts of latent rows, and blocks behind the model.
#include "pretrained/golden_models.h"
#include "pretrained/held_values.h"
#include "pretrained/source_values.h"
#include "weft/formats/gguf_writer.h"
#include "weft/pretrained/export_gguf.h"
#include "weft/pretrained/random_model.h"

namespace weft {
namespace {

// Two keys, each of two heads of values that are as wide as `value_dim`: one block, a part of one or several.
ModelConfig delta_model(const char* family, int64_t value_dim, int64_t width = 64) {
  ModelConfig c = family_defaults(family);
  c.layers = 4, c.hidden = width, c.heads = 4, c.kv_heads = 2, c.head_dim = width / 4, c.ffn = width, c.vocab = 40;
  c.context = 32, c.state_heads = 4, c.state_key_heads = 2, c.state_key_dim = 32, c.state_value_dim = value_dim;
  if (std::string_view(family) != "qwen3_5")
    c.experts = 4, c.experts_per_token = 2, c.expert_ffn = width, c.shared_experts = 1;
  complete(c);
  return c;
}

struct DeltaFile {
  const char* family;
  GgmlType type;
  int64_t value_dim, width;
  MeshShape mesh = {};
};
class GgufDeltaTest : public testing::TestWithParam<DeltaFile> {};
INSTANTIATE_TEST_SUITE_P(Files, GgufDeltaTest,
                         testing::Values(DeltaFile{"qwen3_5", GgmlType::q8_0, 32, 64},
                                         DeltaFile{"qwen3_5", GgmlType::q4_0, 64, 64, {.tp = 2}},
                                         DeltaFile{"qwen3_5", GgmlType::q8_0, 16, 64, {.tp = 2}},
                                         DeltaFile{"qwen3_5", GgmlType::q4_k, 64, 256},
                                         DeltaFile{"qwen3_5", GgmlType::q4_k, 256, 256, {.tp = 2}},
                                         DeltaFile{"qwen3_5_moe", GgmlType::q6_k, 128, 256, {.tp = 2}},
                                         DeltaFile{"qwen3_next", GgmlType::q5_k, 64, 256, {.pp = 2}}),
                         [](const auto& test) {
                           const DeltaFile& c = test.param;
                           return fmt::format("{}_{}_{}_{}", c.family, weft::name_of(c.type), c.value_dim,
                                              name_of_mesh(c.mesh));
                         });

// Whose heads of values lie as weft has them.
constexpr std::string_view kOfEachKey = "qwen3_next";

TEST_P(GgufDeltaTest, HoldsTheBlocksOfItsHeads) {
  const DeltaFile& c = GetParam();
  const TemporaryFolder folder;
  export_gguf(*random_model("random", delta_model(c.family, c.value_dim, c.width)), folder / "m.gguf",
              {.type = c.type});
  const auto source = open_model(folder / "m.gguf");
  std::atomic<int> num_outputs = 0;
  const Logits got = logits_of(*source, kSomeIds, {.as_stored = true}, c.mesh, [&](TestRank&, ForwardModel& m) {
    for (const Param* p : m.part().params()) {
      if (!p->blocks()) continue;
      const bool is_output = p->name.ends_with("state.output.weight");
      const bool has_parts = c.family != kOfEachKey && c.value_dim % int64_t(info_of(c.type).block) != 0;
      const bool stays = !is_output || !has_parts;
      num_outputs += is_output;
      EXPECT_EQ(p->blocks().type, stays ? block_type_of(c.type) : BlockType::q8_0) << p->name;
      const HeldValues values(*p, *source);
      if (stays)
        EXPECT_TRUE(values.held == values.read) << p->name;
      else
        EXPECT_LT(values.error(), 3e-5) << p->name;
    }
  });
  EXPECT_GE(num_outputs, 3);
  const Logits decoded = logits_of(*source, kSomeIds, {}, {});
  EXPECT_LE(worst_difference(got, decoded), 0.15 * largest(decoded));
}

// A file's tensors, to be written otherwise.
struct RawFile {
  struct Raw {
    GgufInfo info;
    std::vector<std::byte> bytes;
  };
  GgufMetadata metadata;
  std::vector<Raw> tensors;

  explicit RawFile(const std::string& path, std::set<std::string> without = {}) {
    const GgufFile file(path);
    for (const std::string& key : file.keys())
      if (!without.contains(key)) metadata.set_copy(key, file.at(key));
    for (const GgufTensor& t : file.tensors()) {
      const Bytes bytes = file.bytes(t);
      tensors.push_back({{t.name, t.type, t.shape()}, {bytes.begin(), bytes.end()}});
    }
  }
  void write(const std::string& path) const {
    std::vector<GgufInfo> infos;
    for (const Raw& t : tensors) infos.push_back(t.info);
    GgufWriter writer(FileSystem::real(), path, infos, metadata);
    for (const Raw& t : tensors) writer.write(t.bytes);
    writer.finish();
  }
  Raw* find(const std::string& name) {
    for (Raw& t : tensors)
      if (t.info.name == name) return &t;
    return nullptr;
  }
  Raw taken(const std::string& name) {
    Raw* const found = find(name);
    const Raw raw = *found;
    tensors.erase(tensors.begin() + (found - tensors.data()));
    return raw;
  }
};

// Groups of rows of several tensors, one tensor's behind the other's in each group.
struct Rows {
  const RawFile::Raw* from;
  int64_t first, count;  // of the first group; those of the others follow
};
std::vector<std::byte> grouped(const std::vector<Rows>& parts, int64_t groups) {
  std::vector<std::byte> all;
  for (int64_t g = 0; g < groups; ++g)
    for (const auto& [from, first, count] : parts) {
      const auto row = std::ptrdiff_t(ggml_bytes(from->info.type, uint64_t(from->info.shape[-1])).value());
      const auto at = from->bytes.begin() + (first + g * count) * row;
      all.insert(all.end(), at, at + count * row);
    }
  return all;
}

void expect_the_same(const ModelSource& got, const ModelSource& want) {
  ASSERT_EQ(got.config(), want.config());
  for (const ParamNames& names : want.names())
    EXPECT_EQ(values_of(got, names), values_of(want, names)) << names.param;
  const BlockChoice choice{.as_stored = true};
  EXPECT_EQ(worst_difference(logits_of(got, kSomeIds, choice, {}), logits_of(want, kSomeIds, choice, {})), 0);
}

class GgufOtherwiseTest : public testing::Test {
 protected:
  std::unique_ptr<ModelSource> written(const char* family, GgmlType type) {
    export_gguf(*random_model("random", delta_model(family, 32)), folder / "m.gguf", {.type = type});
    return open_model(folder / "m.gguf");
  }
  const TemporaryFolder folder;
};

TEST_F(GgufOtherwiseTest, BothHalvesOfExpertsMayBeOneTensor) {
  const auto plain = written("qwen3_5_moe", GgmlType::q8_0);
  const ModelConfig& c = plain->config();
  RawFile file(folder / "m.gguf");
  for (int64_t i = 0; i < c.layers; ++i) {
    const RawFile::Raw gate = file.taken(fmt::format("blk.{}.ffn_gate_exps.weight", i));
    const RawFile::Raw up = file.taken(fmt::format("blk.{}.ffn_up_exps.weight", i));
    file.tensors.push_back({{fmt::format("blk.{}.ffn_gate_up_exps.weight", i), gate.info.type,
                             Shape{c.experts, 2 * c.expert_ffn, c.hidden}},
                            grouped({{&gate, 0, c.expert_ffn}, {&up, 0, c.expert_ffn}}, c.experts)});
  }
  file.write(folder / "fused.gguf");
  const auto fused = open_model(folder / "fused.gguf");
  EXPECT_TRUE(fused->blocks_of("layers.1.moe.experts.up.weight"));
  expect_the_same(*fused, *plain);
}

TEST_F(GgufOtherwiseTest, OlderFilesHoldTheRulesInputsOfAKeyTogether) {
  const auto plain = written("qwen3_next", GgmlType::q8_0);
  const ModelConfig& c = plain->config();
  const int64_t keys = c.state_key_heads, dk = c.state_key_dim, dv = c.state_value_dim * c.state_heads / keys;
  RawFile file(folder / "m.gguf");
  for (int64_t i = 0; i < c.layers; ++i) {
    if (!c.is_recurrent(i)) continue;
    const RawFile::Raw all = file.taken(fmt::format("blk.{}.attn_qkv.weight", i));
    const RawFile::Raw gate = file.taken(fmt::format("blk.{}.attn_gate.weight", i));
    const int64_t first_key = keys * dk, first_value = 2 * keys * dk;
    file.tensors.push_back(
        {{fmt::format("blk.{}.ssm_in.weight", i), all.info.type, Shape{keys * 2 * (dk + dv), c.hidden}},
         grouped({{&all, 0, dk}, {&all, first_key, dk}, {&all, first_value, dv}, {&gate, 0, dv}}, keys)});
  }
  file.write(folder / "older.gguf");
  expect_the_same(*open_model(folder / "older.gguf"), *plain);
}

TEST_F(GgufOtherwiseTest, BlocksBehindTheModelAreNotRead) {
  const auto plain = written("qwen3_5", GgmlType::f32);
  RawFile file(folder / "m.gguf", {"qwen35.block_count", "qwen35.nextn_predict_layers"});
  file.metadata.set<uint32_t>("qwen35.block_count", 5);
  file.metadata.set<uint32_t>("qwen35.nextn_predict_layers", 1);
  file.metadata.set_array<int32_t>("qwen35.attention.other", std::vector<int32_t>{1});
  file.tensors.push_back({{"blk.4.nextn.eh_proj.weight", GgmlType::f32, {2}}, std::vector<std::byte>(8)});
  const bool recurrent[] = {true, true, true, false, false};
  file.metadata.set_array<bool>("qwen35.attention.recurrent_layers", recurrent);
  file.write(folder / "further.gguf");
  expect_the_same(*open_model(folder / "further.gguf"), *plain);
}

TEST_F(GgufOtherwiseTest, ARateThatIsNoneIsRefusedByName) {
  written("qwen3_5", GgmlType::f32);
  RawFile file(folder / "m.gguf");
  const float positive = 0.5f;
  std::memcpy(file.find("blk.0.ssm_a")->bytes.data(), &positive, sizeof(positive));
  file.write(folder / "wrong.gguf");
  const auto wrong = open_model(folder / "wrong.gguf");
  try {
    logits_of(*wrong, kSomeIds, {}, {});
    ADD_FAILURE() << "nothing refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string_view(e.what()).find("blk.0.ssm_a is 0.5"), std::string_view::npos) << e.what();
  }
}

// Kimi Linear, whose convolutions are three tensors.
TEST(GgufKimiTest, IsHeldInBlocksButForConvolutions) {
  ModelConfig c = family_defaults("kimi_linear");
  c.layers = 2, c.hidden = 64, c.heads = 4, c.head_dim = 40, c.ffn = 64, c.vocab = 40, c.context = 32;
  c.kv_rank = 32, c.rotary_dim = 8, c.value_dim = 32, c.attention_every = 2;
  c.state_key_dim = 32, c.state_value_dim = 32;
  complete(c);
  const TemporaryFolder folder;
  export_gguf(*random_model("random", c), folder / "m.gguf", {.type = GgmlType::q8_0});
  const auto source = open_model(folder / "m.gguf");
  for (const char* name : {"blk.0.ssm_conv1d_q.weight", "blk.0.ssm_conv1d_k.weight", "blk.0.ssm_conv1d_v.weight"})
    EXPECT_EQ(source->tensors().find(name)->dtype_name, "F32") << name;
  EXPECT_EQ(source->tensors().find("blk.0.ssm_f_b.weight")->dtype_name, "Q8_0");
  const Logits decoded = logits_of(*source, kSomeIds, {}, {});
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}})
    EXPECT_LE(worst_difference(logits_of(*source, kSomeIds, {.as_stored = true}, mesh), decoded),
              0.15 * largest(decoded))
        << name_of_mesh(mesh);
}

// Mamba-2, experts that read 32 of a token's 64 numbers, attention, and such experts again.
ModelConfig latent_expert_model() {
  ModelConfig c = family_defaults("nemotron_h");
  c.layers = 4, c.hidden = 64, c.heads = 4, c.kv_heads = 2, c.head_dim = 16, c.ffn = 64, c.vocab = 40, c.context = 32;
  c.state_heads = 4, c.state_key_heads = 2, c.state_key_dim = 32, c.state_value_dim = 32;
  c.experts = 4, c.experts_per_token = 2, c.expert_ffn = 64, c.expert_latent_dim = 32, c.shared_experts = 1;
  complete(c);
  return c;
}

TEST(GgufLatentExpertsTest, AreHeldInBlocks) {
  const TemporaryFolder folder;
  export_gguf(*random_model("random", latent_expert_model()), folder / "m.gguf", {.type = GgmlType::q8_0});
  const auto source = open_model(folder / "m.gguf");
  const Logits decoded = logits_of(*source, kSomeIds, {}, {});
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.shard = 2, .tp = 2, .ep = 2}}) {
    std::atomic<int> num_held = 0;
    const Logits got = logits_of(*source, kSomeIds, {.as_stored = true}, mesh, [&](TestRank&, ForwardModel& m) {
      for (const Param* p : m.part().params())
        num_held += p->is_only_blocks() && p->name.find(".moe.latent_") != std::string::npos;
    });
    EXPECT_EQ(num_held, 4 * mesh.size());
    EXPECT_LE(worst_difference(got, decoded), 0.15 * largest(decoded)) << name_of_mesh(mesh);
  }
}

// llama.cpp's converter has put attention and experts of that part into one block, and into one each.
TEST(GgufLatentExpertsTest, TheirPartThatPredictsFurtherOnIsNotRead) {
  const TemporaryFolder folder;
  export_gguf(*random_model("random", latent_expert_model()), folder / "m.gguf", {.type = GgmlType::f32});
  const auto plain = open_model(folder / "m.gguf");
  EXPECT_EQ(plain->config().expert_latent_dim, 32);
  const std::string blocks = "nemotron_h_moe.block_count", heads = "nemotron_h_moe.attention.head_count_kv",
                    widths = "nemotron_h_moe.feed_forward_length";
  for (const uint32_t further : {1, 2}) {
    RawFile file(folder / "m.gguf", {blocks, heads, widths});
    file.metadata.set<uint32_t>(blocks, 4 + further);
    file.metadata.set<uint32_t>("nemotron_h_moe.nextn_predict_layers", further);
    const bool is_one = further == 1;
    file.metadata.set_array<int32_t>(
        heads, is_one ? std::vector<int32_t>{0, 0, 2, 0, 2} : std::vector<int32_t>{0, 0, 2, 0, 2, 0});
    file.metadata.set_array<int32_t>(
        widths, is_one ? std::vector<int32_t>{0, 64, 0, 64, 64} : std::vector<int32_t>{0, 64, 0, 64, 0, 64});
    for (const char* name : {"nextn.eh_proj.weight", "ffn_latent_down.weight"})
      file.tensors.push_back(
          {{fmt::format("blk.{}.{}", 3 + further, name), GgmlType::f32, {2}}, std::vector<std::byte>(8)});
    file.write(folder / fmt::format("further{}.gguf", further));
    expect_the_same(*open_model(folder / fmt::format("further{}.gguf", further)), *plain);
  }
}

}  // namespace
}  // namespace weft
