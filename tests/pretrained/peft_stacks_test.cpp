// Adapters beside experts in stacks, as PEFT writes them for Transformers from version 5 on: the same as adapted
// tensors of a model's files, whatever the ranks and scales of modules.
#include <gtest/gtest.h>

#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "weft/base/philox.h"
#include "weft/pretrained/peft.h"

namespace weft {
namespace {

constexpr int64_t kRank = 2, kWideRank = 4;
constexpr float kAlpha = 3, kWideAlpha = 5;  // of gates and ups
constexpr const char* kConfig =
    R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": [],
        "target_parameters": ["gate.weight", "mlp.experts.gate_up_proj", "down_proj"],
        "rank_pattern": {".*\\.gate_up_proj": 4}, "alpha_pattern": {".*\\.gate_up_proj": 5}})";

std::vector<float> noise(const std::string& name, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(philox_normal(2, name_hash(name), i)) / 4;
  return values;
}

struct Factor {
  std::string name;
  Shape shape;
  std::vector<float> values() const { return noise(name, shape.numel()); }
};

void write_folder(const std::string& folder, const std::string& config, const std::vector<Factor>& factors) {
  std::ofstream(join_path(folder, kPeftConfigName)) << config;
  std::vector<SafetensorsInfo> infos;
  for (const Factor& f : factors) infos.push_back({f.name, DType::f32, f.shape});
  SafetensorsWriter writer(FileSystem::real(), join_path(folder, kPeftWeightsName), infos);
  for (const Factor& f : factors) {
    const std::vector<float> values = f.values();
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
}

class StackedPeftTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    base_ = open_model(golden_.path());
    const ModelConfig& c = base_->config();
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string module = fmt::format("base_model.model.model.layers.{}.mlp.", layer);
      const auto add = [&](const std::string& name, int64_t experts, int64_t rank, int64_t in, int64_t out) {
        factors_.push_back({module + name + ".lora_A.weight", {experts * rank, in}});
        factors_.push_back({module + name + ".lora_B.weight", {out, rank * experts}});
      };
      add("experts.base_layer", c.experts, kWideRank, c.hidden, 2 * c.expert_ffn);
      add("experts", c.experts, kRank, c.expert_ffn, c.hidden);
      add("gate", 1, kRank, c.hidden, c.experts);
    }
  }
  void write(const std::string& folder, const char* config) const { write_folder(folder, config, factors_); }
  // What the adapters of a layer add to a tensor of it; empty: nothing.
  std::vector<float> delta_of(const std::string& param, int64_t layer, int64_t expert) const {
    const ModelConfig& c = base_->config();
    const bool is_router = param.ends_with(".router.weight"), is_down = param.ends_with(".down.weight");
    const bool is_up = param.ends_with(".up.weight");
    if (!is_router && param.find(".moe.experts.") == std::string::npos) return {};
    const auto first = size_t(6 * layer + (is_router ? 4 : is_down ? 2 : 0));
    const int64_t experts = is_router ? 1 : c.experts, rank = is_router || is_down ? kRank : kWideRank;
    const std::vector<float> a = factors_[first].values(), b = factors_[first + 1].values();
    const int64_t in = factors_[first].shape[1], begin = is_up ? c.expert_ffn : 0;
    const int64_t out = is_router || is_down ? factors_[first + 1].shape[0] : c.expert_ffn;
    const float scale = (rank == kRank ? kAlpha : kWideAlpha) / float(rank);
    std::vector<float> delta(size_t(out * in));
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        for (int64_t k = 0; k < rank; ++k)
          delta[size_t(o * in + i)] += scale * b[size_t((begin + o) * rank * experts + k * experts + expert)] *
                                       a[size_t((expert * rank + k) * in + i)];
    return delta;
  }
  // The model's folder with them in its tensors.
  void merge(const std::string& folder) const {
    std::filesystem::copy_file(golden_.path() + "/config.json", join_path(folder, "config.json"));
    const SafetensorsFile plain(golden_.path() + "/model.safetensors");
    std::map<std::string, std::vector<float>> deltas;
    for (const ParamNames& names : base_->names()) {
      if (!names.param.starts_with("layers.")) continue;
      const int64_t layer = std::stoll(names.param.substr(7));
      for (size_t e = 0; e < names.stored.size(); ++e)
        deltas[names.stored[e]] = delta_of(names.param, layer, int64_t(e));
    }
    std::vector<SafetensorsInfo> infos;
    for (const SafetensorsEntry& e : plain.entries()) infos.push_back({e.name, DType::f32, e.shape()});
    SafetensorsWriter writer(FileSystem::real(), join_path(folder, "model.safetensors"), infos);
    for (const SafetensorsInfo& info : infos) {
      const Bytes bytes = plain.bytes(plain.at(info.name));
      std::vector<float> values(size_t(info.shape.numel()));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      const std::vector<float>& delta = deltas[info.name];
      for (size_t i = 0; i < delta.size(); ++i) values[i] += delta[i];
      writer.write(std::as_bytes(std::span(values)));
    }
    writer.finish();
  }

  GoldenModel golden_{GetParam()};
  std::shared_ptr<const ModelSource> base_;
  std::vector<Factor> factors_;  // of each layer: of gates and ups, of downs, of the router
};
INSTANTIATE_TEST_SUITE_P(Models, StackedPeftTest, testing::Values("mixtral", "qwen3_moe", "qwen3_next"),
                         [](const auto& test) { return std::string(test.param); });

Logits adapted_logits_on(const ModelSource& source, const MeshShape& mesh, const std::vector<int32_t>& ids) {
  return logits_on(
      source.config(), mesh, [&](ForwardModel& m) { m.load(source); }, ids);
}

TEST_P(StackedPeftTest, IsThatOfEachExpert) {
  const TemporaryFolder peft, merged;
  write(peft.path(), kConfig);
  merge(merged.path());
  const auto adapted = open_adapted(base_, peft.path()), want = open_model(merged.path());
  const LoraConfig& lora = adapted->config().lora;
  EXPECT_EQ(lora.rank, kWideRank);
  EXPECT_FLOAT_EQ(lora.scale(), kAlpha / float(kRank));
  EXPECT_EQ(lora.targets,
            kExpertTargets | bit_of(LoraTarget::router) |
                (base_->config().shared_experts > 0 ? LoraTargets(0)
                                                    : lora_targets({"dense_gate", "dense_up", "dense_down"})));
  const Logits expected = adapted_logits_on(*want, {}, golden_.ids());
  EXPECT_GT(worst_difference(adapted_logits_on(*base_, {}, golden_.ids()), expected), 0.1);
  const double bound = 2 * single_bound(base_->config());
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.shard = 2, .ep = 2}})
    EXPECT_LT(worst_difference(adapted_logits_on(*adapted, mesh, golden_.ids()), expected), bound)
        << name_of_mesh(mesh);
  // Written as weft does, an expert at a time.
  const TemporaryFolder again;
  write_peft(*adapted, "base", again / "peft");
  EXPECT_LT(worst_difference(adapted_logits_on(*open_adapted(base_, again / "peft"), {}, golden_.ids()), expected),
            bound);
}

TEST_P(StackedPeftTest, RefusesOtherShapesAndPatterns) {
  const auto refused = [&](const char* config, const char* what) {
    const TemporaryFolder folder;
    write(folder.path(), config);
    try {
      open_adapted(base_, folder.path());
      ADD_FAILURE() << config;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
    }
  };
  refused(R"({"r": 2, "target_parameters": ["gate_up_proj", "down_proj"]})", "has another shape");
  refused(R"({"r": 2, "rank_pattern": {".*gate_up_proj": 3}, "target_parameters": ["gate_up_proj", "down_proj"]})",
          "has another shape");
  refused(R"({"r": 2, "rank_pattern": {"((": 3}, "target_parameters": ["gate_up_proj", "down_proj"]})",
          "rank_pattern");
  refused(R"({"r": 2, "rank_pattern": {".*gate_up_proj": 1e9}, "target_parameters": ["gate_up_proj", "down_proj"]})",
          "rank_pattern");
  refused(R"({"r": 2, "rank_pattern": {".*gate_up_proj": 4, "gate_up_proj": 2},
              "target_parameters": ["gate_up_proj", "down_proj"]})",
          "two patterns");
  refused(R"({"r": 2, "target_parameters": ["down_proj"]})", "target_parameters");
  refused(R"({"r": 2})", "target_parameters");
}

std::unique_ptr<ModelSource> adapted_model(const GoldenModel& golden, const std::string& folder,
                                           const std::string& config, const std::vector<Factor>& factors) {
  write_folder(folder, config, factors);
  return open_adapted(open_model(golden.path()), folder);
}

std::vector<float> values_of_param(const ModelSource& source, const std::string& param) {
  for (const ParamNames& names : source.names())
    if (names.param == param) {
      std::vector<float> values(size_t(names.shape.numel()));
      source.read(param, 0, values);
      return values;
    }
  ADD_FAILURE() << param;
  return {};
}

// gpt-oss' rows of gates and ups take turns, and often only some layers' experts are adapted.
TEST(PeftOfSomeLayersTest, StacksOfOneLayerInTurn) {
  const GoldenModel golden("gpt_oss");
  const ModelConfig c = open_model(golden.path())->config();
  const std::string module = "base_model.model.model.layers.1.mlp.experts.";
  const Factor a{module + "base_layer.lora_A.weight", {c.experts * kRank, c.hidden}};
  const Factor b{module + "base_layer.lora_B.weight", {2 * c.expert_ffn, kRank * c.experts}};
  const TemporaryFolder folder;
  const auto adapted = adapted_model(
      golden, folder.path(),
      R"({"r": 2, "lora_alpha": 2, "target_parameters": ["1.mlp.experts.gate_up_proj", "1.mlp.experts.down_proj"]})",
      {a,
       b,
       {module + "lora_A.weight", {c.experts * kRank, c.expert_ffn}},
       {module + "lora_B.weight", {c.hidden, kRank * c.experts}}});
  const std::vector<float> stored = b.values();
  for (const int64_t odd : {0, 1}) {
    const std::string linear = odd ? "layers.1.moe.experts.up" : "layers.1.moe.experts.gate";
    EXPECT_EQ(values_of_param(*adapted, linear + ".lora_a"), a.values());
    const std::vector<float> got = values_of_param(*adapted, linear + ".lora_b");
    for (int64_t e = 0; e < c.experts; ++e)
      for (int64_t f = 0; f < c.expert_ffn; ++f)
        for (int64_t k = 0; k < kRank; ++k)
          ASSERT_EQ(got[size_t((e * c.expert_ffn + f) * kRank + k)],
                    stored[size_t((2 * f + odd) * kRank * c.experts + k * c.experts + e)]);
  }
  for (const float x : values_of_param(*adapted, "layers.0.moe.experts.down.lora_a")) EXPECT_EQ(x, 0);
  for (const float x : values_of_param(*adapted, "layers.3.moe.experts.up.lora_b")) EXPECT_EQ(x, 0);
}

TEST(PeftOfSomeLayersTest, ModulesOfOneLayer) {
  const GoldenModel golden("llama");
  const ModelConfig c = open_model(golden.path())->config();
  const std::string module = "base_model.model.model.layers.1.self_attn.q_proj.";
  const std::vector<Factor> factors{{module + "lora_A.weight", {kRank, c.hidden}},
                                    {module + "lora_B.weight", {c.heads * c.head_dim, kRank}}};
  const TemporaryFolder folder, other;
  const auto adapted = adapted_model(
      golden, folder.path(), R"({"r": 2, "target_modules": ["q_proj"], "layers_to_transform": [1]})", factors);
  EXPECT_EQ(values_of_param(*adapted, "layers.1.attention.query.lora_b"), factors[1].values());
  for (const float x : values_of_param(*adapted, "layers.0.attention.query.lora_b")) EXPECT_EQ(x, 0);
  // Without a word about it, layers that are missing are missing.
  EXPECT_THROW(adapted_model(golden, other.path(), R"({"r": 2, "target_modules": ["q_proj"]})", factors), Error);
}

}  // namespace
}  // namespace weft
