// Every family gives the logits that Hugging Face's library gives, from its own files, on one rank and on meshes.
#include "pretrained/golden_models.h"

#include "pretrained/model_on_ranks.h"

namespace weft {
namespace {

class GoldenModelsTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, GoldenModelsTest, testing::ValuesIn(GoldenModel::all()),
                         [](const auto& test) { return test.param; });

TEST_P(GoldenModelsTest, GiveTheirLogits) {
  const GoldenModel golden(GetParam());
  const auto source = open_model(golden.path());
  const ModelConfig& config = source->config();
  const Fill fill = [&](ForwardModel& m) { m.load(*source); };
  const double single = single_bound(config);
  const Logits exact = logits_on(config, {}, fill, golden.ids(), reference_kernels(), DType::f64);
  EXPECT_LT(worst_difference(exact, golden.logits()), kExact);
  const Logits one = logits_on(config, {}, fill, golden.ids());
  EXPECT_LT(worst_difference(one, golden.logits()), single);
  std::vector<MeshShape> meshes{{.tp = 2}};
  if (config.stands_on_one_stage())
    meshes.push_back({.tp = 4});
  else
    meshes.insert(meshes.end(), {{.pp = 2}, {.pp = 2, .tp = 4}});
  if (config.experts > 0) meshes.push_back({.shard = 2, .tp = 2, .ep = 2});
  for (const MeshShape& mesh : meshes)
    EXPECT_LT(worst_difference(logits_on(config, mesh, fill, golden.ids()), golden.logits()), single)
        << name_of_mesh(mesh);
}

// Biases by which routers choose are no parameters.
TEST_P(GoldenModelsTest, HaveAsManyParametersAsTheyCount) {
  const GoldenModel golden(GetParam());
  const auto source = open_model(golden.path());
  const ModelConfig& config = source->config();
  int64_t sum = 0;
  for (const ParamNames& names : source->names())
    if (config.expert_bias || !names.param.ends_with(".router.bias")) sum += names.shape.numel();
  EXPECT_EQ(config.num_params(), sum);
}

// Prefill, then decode, by the full forward's logits. Where angles depend on the length at hand, earlier keys were
// turned for a shorter text, so that the two differ by intent.
TEST_P(GoldenModelsTest, DecodeAsTheyRead) {
  const GoldenModel golden(GetParam());
  const auto source = open_model(golden.path());
  const auto kind = source->config().rope_scaling.kind;
  if (kind == RopeScaling::Kind::dynamic || kind == RopeScaling::Kind::longrope) return;
  if (!source->config().writes_texts()) return;
  const Fill fill = [&](ForwardModel& m) { m.load(*source); };
  const int stages = source->config().stands_on_one_stage() ? 1 : 2;
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.pp = stages, .tp = 2}}) {
    std::vector<int32_t> tokens = golden.ids(), want;
    tokens.resize(5);
    const std::vector<int32_t> got = greedy_on(source->config(), mesh, fill, tokens, 20);
    for (int i = 0; i < 20; ++i) {
      const std::vector<double> last = logits_on(source->config(), {}, fill, tokens).back();
      want.push_back(int32_t(std::max_element(last.begin(), last.end()) - last.begin()));
      tokens.push_back(want.back());
    }
    EXPECT_EQ(got, want) << name_of_mesh(mesh);
  }
}

}  // namespace
}  // namespace weft
