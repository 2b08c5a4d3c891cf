// BidirectionalModel: texts do not see each other, files without heads are read, and what such models are not for is
// refused.
#include "weft/pretrained/bidirectional_model.h"

#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "support/message_of.h"
#include "weft/comm/single/single.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/hf_family.h"
#include "weft/serve/step_runner.h"

namespace weft {
namespace {

void with_model(const ModelSource& source, const MeshShape& shape, DType dtype, const Kernels& kernels,
                const std::function<void(BidirectionalModel&, ForwardModel&)>& body) {
  run_ranks(shape.size(), [&](Communicator& world) {
    TestRank rank(kernels);
    const Mesh mesh(world, shape);
    ForwardModel forward(rank.context, mesh, source.config(), dtype);
    forward.load(source);
    BidirectionalModel model(forward);
    body(model, forward);
  });
}

class BothWaysTest : public testing::TestWithParam<const char*> {
 protected:
  const GoldenModel golden_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Models, BothWaysTest, testing::Values("gemma3_both_ways", "eurobert", "llama_both_ways"),
                         [](const auto& test) { return test.param; });

TEST_P(BothWaysTest, TextsOfOneStepDoNotSeeEachOther) {
  const auto source = open_model(golden_.path());
  with_model(*source, {}, DType::f64, reference_kernels(), [&](BidirectionalModel& model, ForwardModel& forward) {
    const std::vector<int32_t> first{5, 2, 0, 12, 12, 0, 2, 5, 9, 1, 7}, second{3, 1};
    const auto read = [&](std::initializer_list<std::vector<int32_t>> texts) {
      TextRows rows = model.no_texts();
      for (const std::vector<int32_t>& ids : texts) rows.add(ids);
      const Tensor hidden = model.hidden(forward.context(), rows).value;
      std::vector<double> values;
      for (int64_t i = 0; i < hidden.numel(); ++i) values.push_back(TestRank::get(hidden, i));
      return values;
    };
    std::vector<double> alone = read({first});
    const std::vector<double> behind = read({second}), together = read({first, second});
    alone.insert(alone.end(), behind.begin(), behind.end());
    ASSERT_EQ(together.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-12) << i;
  });
}

// Every token of a short text sees the last one.
TEST_P(BothWaysTest, TokensSeeThoseBehindThem) {
  const auto source = open_model(golden_.path());
  const Fill fill = [&](ForwardModel& m) { m.load(*source); };
  const Logits one = logits_on(source->config(), {}, fill, {5, 2, 0, 12}),
               other = logits_on(source->config(), {}, fill, {5, 2, 0, 7});
  for (size_t t = 0; t < one.size(); ++t) EXPECT_NE(one[t], other[t]) << t;
}

TEST_P(BothWaysTest, WritesNone) {
  const auto source = open_model(golden_.path());
  const std::string why = message_of([&] { require_writing(source->config(), "this"); });
  EXPECT_NE(why.find("this reads texts in both directions and writes none"), std::string::npos) << why;
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel forward(rank.context, mesh, source->config(), DType::f32);
  EXPECT_NE(message_of([&] { StepRunner(forward, 2, 4); }).find("both directions"), std::string::npos);
}

// As sentence-transformers saves a model: without its head, and without the part of names that stands for it.
TEST(HeadlessTest, VectorsNeedNoHead) {
  const GoldenModel golden("eurobert");
  const auto whole = open_model(golden.path());
  const TemporaryFolder folder;
  std::filesystem::copy(golden.path() + "/config.json", folder / "config.json");
  const auto stored = open_weights(golden.path());
  std::vector<SafetensorsInfo> infos;
  constexpr size_t kBase = std::string_view("model.").size();
  for (const StoredInfo& info : stored->all())
    if (info.name != "lm_head.weight")
      infos.push_back({info.name.substr(kBase), DType::f32, Shape(std::span<const int64_t>(info.dims))});
  SafetensorsWriter writer(FileSystem::real(), folder / "model.safetensors", infos);
  for (const StoredInfo& info : stored->all())
    if (info.name != "lm_head.weight") writer.write(*stored->bytes(info));
  writer.finish();

  const auto headless = open_model(folder.path());
  EXPECT_FALSE(headless->config().has_head);
  EXPECT_EQ(whole->config().num_params() - headless->config().num_params(), 13 * 32);
  const auto states = [&](const ModelSource& source, const MeshShape& mesh) {
    std::vector<double> values;
    with_model(source, mesh, DType::f32, cpu_kernels(), [&](BidirectionalModel& model, ForwardModel& forward) {
      TextRows rows = model.no_texts();
      const std::vector<int32_t> ids = golden.ids();
      rows.add(ids);
      const Var hidden = model.hidden(forward.context(), rows);
      if (!forward.is_driver()) return;
      for (int64_t i = 0; i < hidden.value.numel(); ++i) values.push_back(TestRank::get(hidden.value, i));
    });
    return values;
  };
  EXPECT_EQ(states(*headless, {}), states(*whole, {}));
  EXPECT_EQ(states(*headless, {.pp = 2, .tp = 2}), states(*whole, {.pp = 2, .tp = 2}));
  with_model(*headless, {}, DType::f32, cpu_kernels(), [&](BidirectionalModel& model, ForwardModel&) {
    TextRows rows = model.no_texts();
    const std::vector<int32_t> ids = golden.ids();
    rows.add(ids);
    EXPECT_NE(message_of([&] { model.logits(rows); }).find("without its head"), std::string::npos);
  });
  const TemporaryFolder to;
  export_hugging_face(*headless, to / "again");
  EXPECT_EQ(states(*open_model(to / "again"), {}), states(*whole, {}));
}

struct WrongDirection {
  const char* name;
  void (*change)(ModelConfig&);
  const char* part;
};
class WrongDirectionTest : public testing::TestWithParam<WrongDirection> {};
INSTANTIATE_TEST_SUITE_P(
    Configs, WrongDirectionTest,
    testing::Values(WrongDirection{"even_window", [](ModelConfig& c) { c.window = 4; }, "model.window = 4"},
                    WrongDirection{"chunks", [](ModelConfig& c) { c.window = 5, c.chunked_window = true; }, "chunks"},
                    WrongDirection{"states", [](ModelConfig& c) { c.attention_every = 2; }, "states"},
                    WrongDirection{
                        "lengths",
                        [](ModelConfig& c) { c.rope_scaling = {.kind = RopeScaling::Kind::dynamic, .factor = 2}; },
                        "rope_scaling"},
                    WrongDirection{"head", [](ModelConfig& c) { c.bidirectional = c.has_head = false; }, "has_head"}),
    [](const auto& test) { return test.param.name; });

TEST_P(WrongDirectionTest, IsRefused) {
  ModelConfig c = family_defaults("llama");
  c.layers = 2, c.hidden = 32, c.heads = 4, c.vocab = 13, c.context = 32, c.bidirectional = true;
  GetParam().change(c);
  const std::string why = message_of([&] { complete(c); });
  EXPECT_NE(why.find(GetParam().part), std::string::npos) << why;
}

TEST(HfDirectionTest, WindowsOfAnUnknownKindAreRefused) {
  const std::string why = message_of([&] {
    parse_hf_config(R"({"model_type": "mistral", "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 13, "sliding_window": 8, "is_causal": false})",
                    "config.json");
  });
  EXPECT_NE(why.find("is_causal"), std::string::npos) << why;
}

TEST(HfDirectionTest, AHeadOfTwoLayersIsRefused) {
  const std::string why = message_of([&] {
    parse_hf_config(R"({"model_type": "eurobert", "architectures": ["EuroBertForSequenceClassification"],
        "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 13})",
                    "config.json");
  });
  EXPECT_NE(why.find("two layers"), std::string::npos) << why;
}

}  // namespace
}  // namespace weft
