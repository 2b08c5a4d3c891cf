// A model with its adapters merged says what it says with them beside it, and can be exported.
#include "weft/pretrained/merged_source.h"

#include "pretrained/adapted_logits.h"
#include "pretrained/golden_models.h"
#include "weft/base/philox.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/peft.h"

namespace weft {
namespace {

struct AdapterCase {
  const char* name;
  const char* golden;
  bool is_dora;
  const char* targets;
};

class MergedSourceTest : public testing::TestWithParam<AdapterCase> {
 protected:
  std::unique_ptr<ModelSource> adapted() const { return open_adapted(open_model(golden_.path()), folder_.path()); }
  // Adapters of random values, as PEFT would write them.
  void SetUp() override {
    const ModelConfig c = open_model(golden_.path())->config();
    std::vector<SafetensorsInfo> infos;
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      const auto add = [&](const char* module, int64_t in, int64_t out) {
        const std::string name = fmt::format("base_model.model.model.layers.{}.{}.lora_", layer, module);
        infos.push_back({name + "A.weight", DType::f32, {2, in}});
        infos.push_back({name + "B.weight", DType::f32, {out, 2}});
        if (GetParam().is_dora) infos.push_back({name + "magnitude_vector", DType::f32, {out}});
      };
      add("self_attn.v_proj", c.hidden, c.kv_heads * c.head_dim);
      if (c.experts == 0) add("mlp.up_proj", c.hidden, c.ffn);
      for (int64_t e = 0; e < c.experts; ++e) {
        const std::string expert = fmt::format("block_sparse_moe.experts.{}.", e);
        add((expert + "w1").c_str(), c.hidden, c.expert_ffn), add((expert + "w2").c_str(), c.expert_ffn, c.hidden);
      }
    }
    std::ofstream(folder_ / kPeftConfigName)
        << fmt::format(R"({{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": {}, "use_dora": {}}})",
                       GetParam().targets, GetParam().is_dora);
    SafetensorsWriter writer(FileSystem::real(), folder_ / kPeftWeightsName, infos);
    for (const SafetensorsInfo& info : infos) {
      std::vector<float> values(size_t(info.shape.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = float(philox_normal(1, name_hash(info.name), i)) / 4;
      writer.write(std::as_bytes(std::span(values)));
    }
    writer.finish();
  }
  Logits logits_of(const ModelSource& source) const {
    return logits_on(
        source.config(), {}, [&](ForwardModel& m) { m.load(source); }, golden_.ids());
  }

  GoldenModel golden_{GetParam().golden};
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, MergedSourceTest,
                         testing::Values(AdapterCase{"lora", "llama", false, R"(["v_proj", "up_proj"])"},
                                         AdapterCase{"dora", "llama", true, R"(["v_proj", "up_proj"])"},
                                         AdapterCase{"experts", "mixtral", false, R"(["v_proj", "w1", "w2"])"}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(MergedSourceTest, SaysWhatTheAdaptedModelSays) {
  const Logits beside = logits_of(*adapted());
  EXPECT_GT(worst_difference(beside, golden_.logits()), 1e-2) << "the adapters should change something";
  const auto merged = merge_adapters(adapted());
  EXPECT_EQ(merged->config().lora.rank, 0);
  EXPECT_LT(worst_difference(logits_of(*merged), beside), 3e-5);
}

TEST_P(MergedSourceTest, AnAdapterOfRowsOnMeshesSaysTheSame) {
  if (GetParam().is_dora) return;  // refused: see PeftTest
  const auto base = open_model(golden_.path());
  const Logits beside = logits_of(*adapted());
  const std::vector<int32_t> ids = golden_.ids();
  std::vector<MeshShape> meshes{{}, {.pp = 2, .tp = 2}};
  if (base->config().experts > 0) meshes.push_back({.shard = 2, .ep = 2});
  for (const MeshShape& mesh : meshes) {
    Logits got;
    on_ranks(
        base->config(), mesh, cpu_kernels(), DType::f32, [&](ForwardModel& m) { m.load(*base); },
        [&](ForwardModel& model) { add_adapted_logits(model, *base, folder_.path(), ids, got); });
    EXPECT_LT(worst_difference(got, beside), 3e-5) << name_of_mesh(mesh);
  }
}

TEST_P(MergedSourceTest, WhatIsWrittenIsReadBack) {
  write_peft(*adapted(), "base", folder_ / "again");
  const SafetensorsFile want(folder_ / kPeftWeightsName), got(folder_ / "again/adapter_model.safetensors");
  ASSERT_EQ(got.entries().size(), want.entries().size());
  for (const SafetensorsEntry& e : want.entries()) {
    const Bytes a = want.bytes(e), b = got.bytes(got.at(e.name));
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << e.name;
  }
  EXPECT_EQ(open_adapted(open_model(golden_.path()), folder_ / "again")->config().lora, adapted()->config().lora);
}

TEST_P(MergedSourceTest, IsExported) {
  const auto merged = merge_adapters(adapted());
  export_hugging_face(*merged, folder_ / "whole");
  const auto whole = open_model(folder_ / "whole");
  for (const ParamNames& names : merged->names()) {
    std::vector<float> a(size_t(names.shape.numel())), b(a.size());
    merged->read(names.param, 0, a), whole->read(names.param, 0, b);
    EXPECT_EQ(a, b) << names.param;
    // In pieces that begin and end inside rows.
    for (size_t at = 0; at < a.size(); at += 7)
      merged->read(names.param, int64_t(at), std::span(b).subspan(at, std::min<size_t>(7, a.size() - at)));
    EXPECT_EQ(a, b) << names.param;
  }
}

}  // namespace
}  // namespace weft
