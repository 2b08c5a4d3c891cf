// What verify trains is what the recipe says; of answers it counts those that are one rank's, and learns from these.
#include "weft/rollout/compared_answers.h"

#include "rollout/policy_setup.h"
#include "weft/comm/single/single.h"

namespace weft {
namespace {

TEST(VerifySourcesTest, PairsAreLearnedBesideTheirReference) {
  const TemporaryFolder folder;
  Recipe r = recipe_of({.accumulation = 2});
  r.model.vocab = 259, r.preference.method = PreferenceMethod::dpo, r.log.dir = folder.path() + "/log";
  std::string pairs;
  for (int i = 0; i < 12; ++i)
    pairs += fmt::format("{{\"prompt\": \"{}:\", \"chosen\": \"yes\", \"rejected\": \"no\"}}\n", i);
  r.data.train = folder.path() + "/pairs.jsonl", r.data.cache_dir = folder.path(), r.data.valid_fraction = 0;
  write_file_atomically(FileSystem::real(), r.data.train, std::string_view(pairs));
  const Dataset data = open_data(r);
  const auto alone = make_single_communicator();
  const TrainedRun run = train_some(r, VerifySources{.data = data}, *alone, 2, 1);
  EXPECT_NEAR(run.losses[0], std::log(2.0), 1e-6);  // the model is its own reference
  EXPECT_LT(run.losses[1], run.losses[0]);
  EXPECT_FALSE(exists(FileSystem::real(), r.log.dir));
}

// Answers come from a table, of each rank a part.
class TableAnswerer final : public Answerer {
 public:
  TableAnswerer(std::vector<std::vector<int32_t>> tokens, int64_t first)
      : tokens_(std::move(tokens)), first_(first) {}
  Given answer(std::span<const Question>) override {
    Given given{.first = first_};
    for (const auto& tokens : tokens_) given.answers.push_back({.tokens = tokens, .is_cut = true});
    return given;
  }
  Speed speed() const override { return {}; }

 private:
  std::vector<std::vector<int32_t>> tokens_;
  int64_t first_;
};

TEST(ComparedAnswersTest, AMeshLearnsFromThoseOfOneRank) {
  ComparedAnswers all;
  const std::vector<Question> questions(4);
  ComparedAnswers::Recorder one(
      all, std::make_unique<TableAnswerer>(std::vector<std::vector<int32_t>>{{1}, {2, 3}, {4}, {5}}, 0));
  const auto said = one.answer(questions);
  EXPECT_FALSE(said.answers[0].is_cut);
  EXPECT_TRUE(said.answers[3].is_cut);
  ComparedAnswers::Player second(all,
                                 std::make_unique<TableAnswerer>(std::vector<std::vector<int32_t>>{{4}, {6}}, 2));
  const auto given = second.answer(questions);
  EXPECT_EQ(given.first, 2);
  ASSERT_EQ(given.answers.size(), 2u);
  EXPECT_EQ(given.answers[1].tokens, std::vector<int32_t>{5});
  EXPECT_TRUE(given.answers[1].is_cut);
  EXPECT_EQ(all.take_share_of_same(), 0.5);
  EXPECT_EQ(all.take_share_of_same(), 1);         // of none
  EXPECT_THROW(second.answer(questions), Error);  // a round that one rank did not have
}

TEST(ComparedAnswersTest, WorthIsAFunctionOfTheText) {
  const Prompt prompt{};
  const auto reward = ComparedAnswers::made_up_reward({});
  const auto worth = reward->score(std::vector<ScoredAnswer>{{&prompt, "a"}, {&prompt, "b"}, {&prompt, "a"}});
  EXPECT_EQ(worth[0], worth[2]);
  EXPECT_NE(worth[0], worth[1]);
}

}  // namespace
}  // namespace weft
