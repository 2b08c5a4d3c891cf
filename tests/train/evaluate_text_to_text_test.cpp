// TextToTextEvaluation gives what the logits of a model say of the targets, on every mesh.
#include "weft/train/evaluate_text_to_text.h"

#include "pretrained/golden_models.h"
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"

namespace weft {
namespace {

struct Pair {
  std::vector<int32_t> source, target;
};
const std::vector<Pair> kTextPairs{{{3, 5, 2, 1}, {4, 4, 9, 1}}, {{7, 1}, {1}}, {{2, 2, 2, 8, 11, 1}, {12, 6, 1}}};

// From the whole logits of one rank, in float64.
EvalResult expected(const std::string& folder) {
  TestRank rank(reference_kernels());
  const auto t5 = open_t5(rank.context, folder, {DType::f64});
  double sum = 0;
  int64_t count = 0;
  for (const Pair& pair : kTextPairs) {
    std::vector<int32_t> before{0};
    before.insert(before.end(), pair.target.begin(), pair.target.end() - 1);
    const Tensor logits = t5->logits(rank.context, before, t5->encode(rank.context, pair.source));
    for (size_t i = 0; i < pair.target.size(); ++i, ++count) {
      const double* row = logits.data<double>() + int64_t(i) * logits.dim(1);
      double all = 0;
      for (int64_t v = 0; v < logits.dim(1); ++v) all += std::exp(row[v]);
      sum += std::log(all) - row[pair.target[i]];
    }
  }
  return {sum / double(count), count};
}

class TextToTextTest : public testing::TestWithParam<std::tuple<const char*, MeshShape>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, TextToTextTest,
                         testing::Combine(testing::Values("t5", "flan_t5"),
                                          testing::Values(MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2},
                                                          MeshShape{.pp = 5}, MeshShape{.pp = 2, .tp = 2},
                                                          MeshShape{.shard = 2}, MeshShape{.shard = 4},
                                                          MeshShape{.pp = 2, .shard = 2})));

TEST_P(TextToTextTest, IsWhatTheLogitsSay) {
  const auto& [name, shape] = GetParam();
  const GoldenModel golden(name, "golden_encoders");
  const EvalResult want = expected(golden.path());
  run_ranks(shape.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, shape);
    const auto t5 = open_t5(rank.context, golden.path(), {DType::f32, &mesh});
    TextToTextEvaluation evaluation(rank.context, mesh, *t5);
    for (const Pair& pair : kTextPairs) evaluation.add(pair.source, pair.target);
    const EvalResult got = evaluation.finish();
    EXPECT_EQ(got.num_targets, want.num_targets);
    EXPECT_NEAR(got.loss, want.loss, 1e-5);
  });
}

struct ExampleCase {
  const char* json;
  const char* source;  // null: refused
  const char* target;
};
class TextToTextExampleTest : public testing::TestWithParam<ExampleCase> {};
const ExampleCase kExamples[] = {
    {R"({"prompt": "translate: a", "completion": "b"})", "translate: a", "b"},
    {R"({"instruction": "Sum up.", "input": "long", "output": "short"})", "Sum up.\nlong", "short"},
    {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})", "q", "a"},
    {R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                      {"role": "assistant", "content": "a"}]})",
     nullptr, nullptr},
    {R"({"instruction": "i", "output": "o", "history": [["q", "a"]]})", nullptr, nullptr},
};
INSTANTIATE_TEST_SUITE_P(Shapes, TextToTextExampleTest, testing::ValuesIn(kExamples));

TEST_P(TextToTextExampleTest, IsAQuestionAndItsAnswer) {
  const auto read = [] {
    const auto json = nlohmann::json::parse(GetParam().json);
    return text_to_text_of(parse_example(json, InstructFormat::automatic, "line 1"), "line 1");
  };
  if (!GetParam().source) {
    EXPECT_THROW(read(), Error);
    return;
  }
  EXPECT_EQ(read().source, GetParam().source);
  EXPECT_EQ(read().target, GetParam().target);
}

}  // namespace
}  // namespace weft
