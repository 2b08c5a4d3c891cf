// Models in GGUF files: written here as llama.cpp lays them out, they say what the same weights say by weft's names.
#include "base/temporary_folder.h"
#include "pretrained/golden_models.h"
#include "pretrained/sample_gguf.h"
#include "weft/pretrained/gguf_family.h"

namespace weft {
namespace {

class GgufModelTest : public testing::TestWithParam<GgufCase> {};

TEST_P(GgufModelTest, SaysWhatItsWeightsSay) {
  const GgufCase& c = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  write_gguf(c, path);
  const auto source = open_model(path);
  EXPECT_EQ(source->kind(), SourceKind::gguf);
  const ModelConfig config = config_of(c);
  const std::vector<int32_t> ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 35};
  const Logits want = logits_on(
      config, {}, [&](ForwardModel& m) { fill_as_written(m, c.type); }, ids);
  const Logits got = logits_on(
      source->config(), c.mesh, [&](ForwardModel& m) { m.load(*source); }, ids);
  EXPECT_LT(worst_difference(got, want), 1e-5);
}

const GgufCase kGgufCases[] = {
    {"llama", GgmlType::f32, false, false},
    {"llama", GgmlType::f16, false, true, {.tp = 2}},
    {"llama", GgmlType::q8_0, false, false, {.pp = 2}},
    {"llama", GgmlType::f32, true, false, {.shard = 2, .ep = 2}},
    {"qwen3", GgmlType::f32, false, true},
    {"qwen3", GgmlType::q8_0, false, false, {.tp = 2}},
    {"qwen3moe", GgmlType::f32, true, false, {.shard = 2, .tp = 2, .ep = 2}},
    {"qwen3vl", GgmlType::f32, false, true},
    {"qwen3vlmoe", GgmlType::f32, true, false},
};
INSTANTIATE_TEST_SUITE_P(Files, GgufModelTest, testing::ValuesIn(kGgufCases), [](const auto& test) {
  const GgufCase& c = test.param;
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
  const std::string sections = refusal([](GgufMetadata& m) {
    m.set_string("general.architecture", "glm4");
    m.set_array<int32_t>("glm4.rope.dimension_sections", std::vector<int32_t>{8, 12, 12, 0});
  });
  EXPECT_NE(sections.find("glm4.rope.dimension_sections"), std::string::npos) << sections;
}

// A key of a small model's description that says what weft cannot do.
struct WrongKey {
  const char *name, *model, *key;
  GgufDescription::Value value;
  const char* says;
};
class GgufKeyTest : public testing::TestWithParam<WrongKey> {};

TEST_P(GgufKeyTest, IsRefusedByName) {
  const auto& [name, model, key, value, says] = GetParam();
  GgufDescription description = describe(open_model(GoldenModel(model).path())->config());
  EXPECT_NO_THROW(config_of(description));
  description.keys[key] = value;
  try {
    config_of(description);
    ADD_FAILURE() << "nothing refused";
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find(says), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Keys, GgufKeyTest,
    testing::Values(
        WrongKey{"keys_and_values_in_one", "deepseek_v2", "attention.head_count_kv", int64_t(4), "convert the model"},
        WrongKey{"unknown_gate", "glm4_moe", "expert_gating_func", int64_t(3), "softmax, which is 1"},
        WrongKey{"infinite_factor", "llama_yarn", "rope.scaling.factor", std::numeric_limits<double>::infinity(),
                 "no number below 1e12"},
        WrongKey{"unknown_stretch", "llama_yarn", "rope.scaling.type", std::string("longrope"), "linear, yarn"},
        WrongKey{"a_shared_expert_of_another_width", "qwen2_moe", "expert_shared_feed_forward_length", int64_t(15),
                 "multiple"},
        WrongKey{"heads_of_keys_of_no_layer", "granite4_h", "attention.head_count_kv", std::vector<int64_t>{},
                 "a number for each layer"},
        WrongKey{"heads_of_keys_that_differ", "granite4_h", "attention.head_count_kv",
                 std::vector<int64_t>{0, 2, 0, 0, 1}, "the same number"},
        WrongKey{"too_few_layers_told", "qwen3_5", "attention.recurrent_layers", std::vector<bool>{true, false},
                 "every layer"},
        WrongKey{"uneven_heads_of_values", "qwen3_next", "ssm.inner_size", int64_t(21), "ssm.time_step_rank"},
        WrongKey{"sizes_of_each_layer", "qwen3", "feed_forward_length", std::vector<int64_t>{20, 20, 24},
                 "no whole number"},
        WrongKey{"dense_layers_between", "ernie4_5_moe", "interleave_moe_layer_step", int64_t(2),
                 "must have experts"},
        WrongKey{"values_of_another_width", "llama", "attention.value_length", int64_t(3), "that of keys"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
