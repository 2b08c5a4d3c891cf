// RewardModel: several texts in a row, on any mesh, have the scores that each has alone.
#include "weft/train/policy/reward_model.h"

#include "pretrained/model_on_ranks.h"
#include "support/message_of.h"
#include "train/mesh_cases.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/counted_objective.h"

namespace weft {
namespace {

Recipe reward_recipe(const MeshCase& mesh, int64_t labels = 1) {
  Recipe r = recipe_of(mesh);
  r.model.vocab = 259, r.model.context = 24;  // bytes
  r.model.labels = labels;
  complete(r.model);
  r.train.seq_len = 24;
  return r;
}

// More rows than a batch has.
std::vector<std::vector<int32_t>> texts() {
  std::vector<std::vector<int32_t>> all;
  for (int32_t i = 0; i < 17; ++i) {
    all.emplace_back();
    for (int32_t t = 0; t <= (i * 7) % 24; ++t) all.back().push_back((31 * i + 17 * t) % 256);
  }
  return all;
}

std::vector<double> scores_on(const MeshCase& mesh, const ModelSource& source) {
  const Recipe recipe = reward_recipe(mesh);
  const EqualRows rows(recipe);
  std::vector<std::vector<double>> of_rank(size_t(recipe.mesh.size()));
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh own(world, recipe.mesh.shape);
    RewardModel model(recipe, rows, source, ByteTokenizer(), rank.context, own);
    of_rank[size_t(world.rank())] = model.score(texts());
  });
  for (const std::vector<double>& scores : of_rank) EXPECT_EQ(scores, of_rank[0]);
  return of_rank[0];
}

TEST(RewardModelTest, ScoresTextsAsIfEachWereAlone) {
  const TemporaryFolder folder;
  const auto source = open_model(saved_model(reward_recipe({}), folder.path(), 0));
  std::vector<double> want;
  for (const std::vector<int32_t>& text : texts())
    want.push_back(logits_on(
                       source->config(), {}, [&](ForwardModel& m) { m.load(*source); }, text)
                       .back()[0]);
  EXPECT_GT(*std::ranges::max_element(want) - *std::ranges::min_element(want), 1e-3);
  for (const MeshCase& mesh :
       {MeshCase{}, MeshCase{.shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters}, MeshCase{.shape = {.pp = 2}},
        MeshCase{.shape = {.shard = 3, .cp = 2}}, MeshCase{.shape = {.tp = 2}, .sequence_parallel = true}}) {
    const std::vector<double> got = scores_on(mesh, *source);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << name_of(mesh) << " " << i;
  }
}

TEST(RewardModelTest, HasOneLabelAndTheSameTokens) {
  const TemporaryFolder classes, writes;
  const auto message = [&](const Recipe& recipe, const TemporaryFolder& at, const Tokenizer& tokenizer) {
    const auto source = open_model(saved_model(recipe, at.path(), 0));
    const Recipe trained = reward_recipe({});
    const EqualRows rows(trained);
    return message_of([&] {
      run_ranks(1, [&](Communicator& world) {
        TestRank rank(cpu_kernels());
        const Mesh mesh(world, {});
        RewardModel(trained, rows, *source, tokenizer, rank.context, mesh);
      });
    });
  };
  EXPECT_NE(message(reward_recipe({}, 3), classes, ByteTokenizer()).find("has 3 labels"), std::string::npos);
  EXPECT_NE(message(reward_recipe({}, 0), writes, ByteTokenizer()).find("writes texts"), std::string::npos);
}

}  // namespace
}  // namespace weft
