// Adapters in PEFT's format: written, read back beside their base, and refused when they are of another kind.
#include "weft/pretrained/peft.h"

#include <gtest/gtest.h>

#include <set>

#include "base/temporary_folder.h"
#include "pretrained/adapted_logits.h"
#include "pretrained/golden_models.h"
#include "pretrained/source_values.h"
#include "support/test_data.h"
#include "weft/formats/safetensors.h"
#include "weft/pretrained/random_model.h"

namespace weft {
namespace {

constexpr const char* kModel = "models/stories260K";

std::string config_with(const std::string& more) {
  return fmt::format(
      R"({{"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"]{}}})", more);
}

std::string folder_with(const TemporaryFolder& folder, const std::string& config) {
  write_file_atomically(FileSystem::real(), folder / kPeftConfigName, config);
  return folder.path();
}

// Zeros, whose names alone count.
void write_factors(const std::string& folder, const std::vector<std::string>& modules) {
  std::vector<SafetensorsInfo> infos;
  for (const std::string& module : modules)
    for (const char* factor : {"lora_A", "lora_B"})
      infos.push_back({fmt::format("base_model.model.{}.{}.weight", module, factor), DType::f32, {1, 1}});
  SafetensorsWriter writer(FileSystem::real(), join_path(folder, kPeftWeightsName), infos);
  for (size_t i = 0; i < infos.size(); ++i) writer.write(std::as_bytes(std::span<const float>({0.0f})));
  writer.finish();
}

std::vector<std::string> targets_beside(const char* family, const std::vector<std::string>& modules) {
  const TemporaryFolder folder;
  write_factors(folder.path(), modules);
  ModelConfig base = family_defaults(family);
  base.layers = 4;
  return lora_target_names(read_adapted_config(folder_with(folder, config_with("")), base).lora);
}

TEST(PeftTest, ConfigSaysWhichAdapters) {
  const TemporaryFolder folder;
  const ModelConfig model = family_defaults("llama");
  write_factors(folder.path(), {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj"});
  const LoraConfig lora = read_adapted_config(folder_with(folder, config_with("")), model).lora;
  EXPECT_EQ(lora.rank, 3);
  EXPECT_EQ(lora.scale(), 2);
  EXPECT_EQ(lora_target_names(lora), (std::vector<std::string>{"q", "dense_down"}));
  EXPECT_FLOAT_EQ(
      read_adapted_config(folder_with(folder, config_with(R"(, "use_rslora": true)")), model).lora.scale(),
      6 / std::sqrt(3.0f));
  EXPECT_FALSE(lora.is_dora);
  EXPECT_TRUE(read_adapted_config(folder_with(folder, config_with(R"(, "use_dora": true)")), model).lora.is_dora);
  for (const char* wrong :
       {R"(, "bias": "all")", R"(, "rank_pattern": {"q_proj": 0.5})", R"(, "modules_to_save": ["lm_head"])"})
    EXPECT_THROW(read_adapted_config(folder_with(folder, config_with(wrong)), model), Error) << wrong;
}

// As older versions of PEFT wrote them: in a file of pickled Python.
TEST(PeftTest, AFolderWithoutTensorsIsRefusedByName) {
  const TemporaryFolder folder;
  folder_with(folder, config_with(""));
  try {
    read_adapted_config(folder.path(), family_defaults("llama"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("has no adapter_model.safetensors"), std::string::npos) << e.what();
  }
}

// A name means what it means in its family: out_proj is attention's in one, the gated delta rule's in another.
TEST(PeftTest, TensorsSayBesideWhatAdaptersStand) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(targets_beside("opt", {"model.decoder.layers.0.self_attn.out_proj"}), Names{"o"});
  EXPECT_EQ(targets_beside("qwen3_5", {"model.layers.0.linear_attn.out_proj"}), Names{"state_o"});
  EXPECT_EQ(targets_beside("qwen3_5", {"model.layers.0.linear_attn.in_proj_qkv", "model.layers.3.self_attn.q_proj"}),
            (Names{"q", "state_qkv"}));
  EXPECT_EQ(targets_beside("qwen3_next", {"model.layers.0.linear_attn.in_proj_qkvz"}),
            (Names{"state_qkv", "state_gate"}));
  EXPECT_EQ(targets_beside("granitemoehybrid", {"model.layers.0.mamba.in_proj"}),
            (Names{"state_qkv", "state_gate", "state_decay"}));
  EXPECT_EQ(targets_beside("falcon_h1", {"model.layers.0.mamba.in_proj", "model.layers.0.self_attn.q_proj"}),
            (Names{"q", "state_qkv", "state_gate", "state_decay"}));
  EXPECT_EQ(targets_beside("olmo_hybrid", {"model.layers.0.linear_attn.o_proj"}), Names{"state_o"});
  EXPECT_EQ(targets_beside("kimi_linear", {"model.layers.0.self_attn.q_proj"}), Names{"state_qkv"});
  EXPECT_EQ(targets_beside("kimi_linear", {"model.layers.0.self_attn.o_proj", "model.layers.3.self_attn.o_proj"}),
            (Names{"o", "state_o"}));
  EXPECT_EQ(targets_beside("kimi_linear",
                           {"model.layers.0.self_attn.forget_gate.f_a_proj", "model.layers.0.self_attn.g_b_proj",
                            "model.layers.0.mlp.up_proj", "model.layers.1.mlp.shared_experts.up_proj"}),
            (Names{"dense_up", "state_gate", "state_decay"}));
  EXPECT_EQ(targets_beside("gpt2", {"transformer.h.0.mlp.c_proj"}), Names{"dense_down"});
  EXPECT_EQ(targets_beside("mixtral", {"model.layers.0.block_sparse_moe.experts.3.w1"}), Names{"expert_gate"});
  EXPECT_EQ(targets_beside("qwen3_next", {"model.layers.0.mlp.shared_expert.up_proj"}), Names{"dense_up"});
  EXPECT_EQ(targets_beside("qwen3_next", {"model.layers.0.mlp.shared_expert_gate"}), Names{"shared_gate"});
  EXPECT_THROW(targets_beside("llama", {"lm_head"}), Error);
  EXPECT_EQ(targets_beside("qwen3_next", {"model.layers.0.mlp.gate"}), Names{"router"});
  EXPECT_EQ(targets_beside("mixtral", {"model.layers.0.mlp.gate"}), Names{"router"});
}

// A head that scores texts is trained whole beside adapters, and saved so; beside a model that writes texts it stands
// in place of the other head.
TEST(PeftTest, AHeadThatScoresTextsIsSavedWhole) {
  ModelConfig plain = family_defaults("llama");
  plain.layers = 1, plain.hidden = 16, plain.heads = 2, plain.ffn = 24, plain.vocab = 40, plain.context = 16;
  ModelConfig scores = plain;
  scores.labels = 3, scores.lora = {.rank = 2, .alpha = 4, .targets = kAllTargets};
  complete(plain), complete(scores);
  const auto model = random_model("random:scores", scores);
  const std::shared_ptr<const ModelSource> base = random_model("random:plain", plain);
  const TemporaryFolder folder;
  write_peft(*model, "base", folder.path());
  const std::string config = read_file(folder / kPeftConfigName, 1 << 20);
  EXPECT_NE(config.find("\"SEQ_CLS\""), std::string::npos) << config;
  const JsonDocument said = JsonDocument::parse(config, kPeftConfigName);
  EXPECT_EQ(said.root().at("modules_to_save").at(int64_t(0)).string(), "score");
  const auto adapted = open_adapted(base, folder.path());
  EXPECT_EQ(adapted->config().labels, 3);
  EXPECT_EQ(adapted->score_rule().labels.size(), 3u);
  std::set<std::string> names;
  for (const ParamNames& n : adapted->names()) {
    names.insert(n.param);
    if (n.param == kScoreName || is_adapter(n.param)) {
      EXPECT_EQ(values_of(*adapted, n), values_of(*model, n)) << n.param;
    }
  }
  std::set<std::string> want;
  for (const ParamNames& n : model->names()) want.insert(n.param);
  EXPECT_EQ(names, want);
  EXPECT_EQ(read_adapted_config(folder.path(), plain).labels, 3);
}

// Modules of several projections, as PEFT adapts them: the same as the adapted tensors of a model's files.
class FusedPeftTest : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kRank = 2;
  static constexpr float kScale = 1.5f;

  // The tensors beside which there are adapters, without ".weight", and the modules' names.
  std::set<std::string> adapted_tensors(const ModelSource& base, std::set<std::string>& modules) const {
    std::set<std::string> tensors;
    for (const ParamNames& names : base.names()) {
      const std::string& stored = names.stored.front();
      if (names.shape.rank() != 2 || !names.param.starts_with("layers.") || !stored.ends_with(".weight")) continue;
      if (names.param.ends_with("_conv.weight")) continue;
      tensors.insert(stored.substr(0, stored.size() - 7));
    }
    for (const std::string& t : tensors) modules.insert(t.substr(t.rfind('.') + 1));
    return tensors;
  }
  static std::vector<float> random(const std::string& name, int64_t size) {
    std::vector<float> values(static_cast<size_t>(size));
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(philox_normal(1, name_hash(name), i)) / 8;
    return values;
  }
  static Logits logits_of(const ModelSource& source, const MeshShape& mesh, const std::vector<int32_t>& ids) {
    return logits_on(
        source.config(), mesh, [&](ForwardModel& m) { m.load(source); }, ids);
  }
};
INSTANTIATE_TEST_SUITE_P(Models, FusedPeftTest,
                         testing::Values("llama", "phi3", "gpt2", "gpt_neox", "falcon_new", "glm4", "starcoder2",
                                         "opt", "qwen2_moe", "qwen3_5", "qwen3_next", "granite4_h", "falcon_h1",
                                         "olmo_hybrid", "mimo_v2_flash"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(FusedPeftTest, IsThePartsOfItsProjections) {
  const GoldenModel golden(GetParam());
  const std::shared_ptr<const ModelSource> base = open_model(golden.path());
  std::set<std::string> modules;
  const std::set<std::string> tensors = adapted_tensors(*base, modules);
  const SafetensorsFile plain(golden.path() + "/model.safetensors");
  // A folder of adapters, and one of the model with them in its tensors.
  const TemporaryFolder peft, merged;
  std::filesystem::copy_file(golden.path() + "/config.json", merged / "config.json");
  std::vector<SafetensorsInfo> infos, all;
  std::vector<std::vector<float>> factors;
  for (const SafetensorsEntry& e : plain.entries()) all.push_back({e.name, DType::f32, e.shape()});
  SafetensorsWriter writer(FileSystem::real(), merged / "model.safetensors", all);
  for (const SafetensorsInfo& info : all) {
    const Bytes bytes = plain.bytes(plain.at(info.name));
    std::vector<float> values(size_t(info.shape.numel()));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    const std::string tensor = info.name.substr(0, info.name.size() - 7);
    if (tensors.contains(tensor)) {
      const bool is_transposed = std::string_view(GetParam()) == "gpt2";
      const int64_t out = info.shape[is_transposed ? 1 : 0], in = info.shape[is_transposed ? 0 : 1];
      const std::string name = "base_model.model." + tensor;
      infos.push_back({name + ".lora_A.weight", DType::f32, {kRank, in}});
      infos.push_back({name + ".lora_B.weight", DType::f32, {out, kRank}});
      const std::vector<float>& a = factors.emplace_back(random(infos[infos.size() - 2].name, kRank * in));
      const std::vector<float> b = random(infos.back().name, out * kRank);
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i)
          for (int64_t r = 0; r < kRank; ++r)
            values[size_t(is_transposed ? i * out + o : o * in + i)] +=
                kScale * b[size_t(o * kRank + r)] * a[size_t(r * in + i)];
      factors.push_back(b);
    }
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
  SafetensorsWriter adapters(FileSystem::real(), peft / kPeftWeightsName, infos);
  for (const auto& values : factors) adapters.write(std::as_bytes(std::span(values)));
  adapters.finish();
  folder_with(peft, fmt::format(R"({{"peft_type": "LORA", "r": {}, "lora_alpha": {}, "target_modules": ["{}"]}})",
                                kRank, kScale * float(kRank), fmt::join(modules, "\", \"")));
  const auto adapted = open_adapted(base, peft.path()), want = open_model(merged.path());
  const double bound = single_bound(base->config());
  const Logits expected = logits_of(*want, {}, golden.ids());
  EXPECT_GT(worst_difference(logits_of(*base, {}, golden.ids()), expected), 0.01);
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}})
    EXPECT_LT(worst_difference(logits_of(*adapted, mesh, golden.ids()), expected), bound) << name_of_mesh(mesh);
  // Written again, each projection has a part of the rank.
  const TemporaryFolder again;
  write_peft(*adapted, "base", again / "peft");
  const auto back = open_adapted(base, again / "peft");
  EXPECT_EQ(back->config().lora.scale(), kScale);
  EXPECT_LT(worst_difference(logits_of(*back, {}, golden.ids()), expected), bound);
}

// Lengths of rows lie as the rows do; those of a part alone would leave the others without.
struct FusedDora {
  const char* golden;
  std::vector<std::string> all, some;
};
class FusedDoraTest : public testing::TestWithParam<FusedDora> {};
INSTANTIATE_TEST_SUITE_P(Models, FusedDoraTest,
                         testing::Values(FusedDora{"phi3", {"q", "k", "v"}, {"q"}},
                                         FusedDora{"qwen3_5", {"state_qkv", "state_o", "state_decay"}, {}},
                                         FusedDora{"qwen3_next", {"state_qkv", "state_gate"}, {"state_qkv"}}),
                         [](const auto& test) { return std::string(test.param.golden); });

TEST_P(FusedDoraTest, HasLengthsOfAllRowsOrIsRefused) {
  const GoldenModel golden(GetParam().golden);
  ModelConfig config = open_model(golden.path())->config();
  config.lora = {.rank = 2, .targets = lora_targets(GetParam().all), .is_dora = true};
  const auto model = random_model("random", config);
  const TemporaryFolder folder;
  write_peft(*model, "base", folder / "peft");
  const auto back = open_adapted(open_model(golden.path()), folder / "peft");
  EXPECT_GT(back->config().lora.rank, 2);
  for (const ParamNames& names : model->names())
    if (names.param.ends_with("lora_magnitude"))
      EXPECT_EQ(values_of(*back, names), values_of(*model, names)) << names.param;
  if (GetParam().some.empty()) return;
  config.lora.targets = lora_targets(GetParam().some);
  EXPECT_THROW(write_peft(*random_model("random", config), "base", folder / "some"), Error);
}

// The adapter that a model gets: random, so that it changes what the model says; with lengths of rows, or without.
class RealPeftTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    path_ = test_data(kModel);
    if (path_.empty()) GTEST_SKIP() << no_test_data(kModel);
  }
  // Writes the folder as PEFT would, from names that are spelled out here.
  std::string write_adapter() {
    const std::unique_ptr<ModelSource> base = open_model(path_);
    const ModelConfig& c = base->config();
    std::vector<SafetensorsInfo> infos;
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      const auto add = [&](const char* module, int64_t in, int64_t out) {
        const std::string name = fmt::format("base_model.model.model.layers.{}.{}.lora_", layer, module);
        infos.push_back({name + "A.weight", DType::f32, {3, in}});
        infos.push_back({name + "B.weight", DType::f32, {out, 3}});
        if (GetParam()) infos.push_back({name + "magnitude_vector", DType::f32, {out}});
      };
      add("self_attn.q_proj", c.hidden, c.heads * c.head_dim);
      add("mlp.down_proj", c.ffn, c.hidden);
    }
    const std::string folder = folder_with(folder_, config_with(GetParam() ? R"(, "use_dora": true)" : ""));
    SafetensorsWriter writer(FileSystem::real(), folder_ / kPeftWeightsName, infos);
    for (const SafetensorsInfo& info : infos) {
      std::vector<float> values(size_t(info.shape.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = float(philox_normal(1, name_hash(info.name), i)) / 4;
      writer.write(std::as_bytes(std::span(values)));
    }
    writer.finish();
    return folder;
  }
  static Logits logits_of(const ModelSource& source, const MeshShape& mesh) {
    return logits_on(source.config(), mesh, [&](ForwardModel& m) { m.load(source); }, {1, 5, 9, 3, 7, 100, 4});
  }

  std::string path_;
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, RealPeftTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "dora" : "lora"; });

// Gives row o of [out, in] values the length that the adapter says.
void set_lengths(const ModelSource& adapted, const std::string& param, const Tensor& values) {
  std::vector<float> magnitude(size_t(values.dim(0)));
  adapted.read(param, 0, magnitude);
  for (int64_t o = 0; o < values.dim(0); ++o) {
    float* const row = values.data<float>() + o * values.dim(1);
    double squares = 0;
    for (int64_t i = 0; i < values.dim(1); ++i) squares += double(row[i]) * double(row[i]);
    for (int64_t i = 0; i < values.dim(1); ++i) row[i] *= float(double(magnitude[size_t(o)]) / std::sqrt(squares));
  }
}

// Adds scale * b a to the weights of a whole model.
void merge(ForwardModel& model, const ModelSource& adapted) {
  const LoraConfig& lora = adapted.config().lora;
  for (Param* p : model.part().params())
    for (const ParamNames& names : adapted.names()) {
      if (names.param != p->name.substr(0, p->name.rfind('.')) + ".lora_a") continue;
      const int64_t out = p->shape[0], in = p->shape[1];
      std::vector<float> a(size_t(lora.rank * in)), b(size_t(out * lora.rank));
      adapted.read(names.param, 0, a);
      adapted.read(names.param.substr(0, names.param.size() - 1) + "b", 0, b);
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i) {
          double sum = 0;
          for (int64_t r = 0; r < lora.rank; ++r)
            sum += double(b[size_t(o * lora.rank + r)]) * double(a[size_t(r * in + i)]);
          p->value.data<float>()[o * in + i] += float(lora.scale() * sum);
        }
      if (lora.is_dora) set_lengths(adapted, names.param.substr(0, names.param.size() - 1) + "magnitude", p->value);
      p->value_changed();
    }
}

TEST_P(RealPeftTest, AnAdaptedModelSaysWhatAMergedOneSays) {
  const std::string folder = write_adapter();
  const std::unique_ptr<ModelSource> plain = open_model(path_), adapted = open_adapted(open_model(path_), folder);
  const Logits merged = logits_on(plain->config(), {},
                                  [&](ForwardModel& m) {
                                    load_values(m.context(), *plain, m.part());
                                    merge(m, *adapted);
                                  },
                                  {1, 5, 9, 3, 7, 100, 4});
  EXPECT_GT(worst_difference(logits_of(*plain, {}), merged), 0.1);
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2, .tp = 2}})
    EXPECT_LT(worst_difference(logits_of(*adapted, mesh), merged), 1e-3) << name_of_mesh(mesh);
}

TEST_P(RealPeftTest, AnAdapterOfAllRowsSaysWhatTheAdaptedModelSays) {
  const std::string folder = write_adapter();
  const std::unique_ptr<ModelSource> plain = open_model(path_), adapted = open_adapted(open_model(path_), folder);
  const std::vector<int32_t> ids{1, 5, 9, 3, 7, 100, 4};
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.pp = 2, .tp = 2}}) {
    Logits got;
    const auto run = [&](ForwardModel& model) { add_adapted_logits(model, *plain, folder, ids, got); };
    const auto load = [&](ForwardModel& m) { m.load(*plain); };
    if (GetParam()) {
      EXPECT_THROW(on_ranks(plain->config(), mesh, cpu_kernels(), DType::f32, load, run), Error);
      continue;
    }
    on_ranks(plain->config(), mesh, cpu_kernels(), DType::f32, load, run);
    EXPECT_EQ(got, logits_of(*adapted, mesh)) << name_of_mesh(mesh);
  }
}

TEST_P(RealPeftTest, WhatIsWrittenIsReadBack) {
  const std::string folder = write_adapter();
  const std::unique_ptr<ModelSource> adapted = open_adapted(open_model(path_), folder);
  const TemporaryFolder again;
  write_peft(*adapted, "base", again / "peft");
  const SafetensorsFile want(folder_ / kPeftWeightsName), got(again / "peft/adapter_model.safetensors");
  ASSERT_EQ(got.entries().size(), want.entries().size());
  for (const SafetensorsEntry& e : want.entries()) {
    const Bytes a = want.bytes(e), b = got.bytes(got.at(e.name));
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << e.name;
  }
  const LoraConfig back = open_adapted(open_model(path_), again / "peft")->config().lora;
  EXPECT_EQ(back, adapted->config().lora);
  EXPECT_THROW(open_adapted(open_adapted(open_model(path_), folder), folder), Error);
  EXPECT_THROW(write_peft(*open_model(path_), "base", again / "none"), Error);
}

}  // namespace
}  // namespace weft
