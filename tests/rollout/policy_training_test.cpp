// Learning from answers of one's own: every mesh answers and learns as one rank does.
#include "rollout/policy_setup.h"
#include "weft/train/start_from.h"

namespace weft {
namespace {

using Method = PolicyMethod;

class PolicyMeshTest : public testing::TestWithParam<PolicyCase> {};
const LoraConfig kAdapters{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets};
INSTANTIATE_TEST_SUITE_P(
    Meshes, PolicyMeshTest,
    testing::Values(
        PolicyCase{"dp2", {.shape = {.shard = 2}}},
        PolicyCase{"tp2_sp", {.shape = {.tp = 2}, .sequence_parallel = true}, Method::dapo},
        PolicyCase{"pp2", {.shape = {.pp = 2}, .accumulation = 4}, Method::dr_grpo},
        PolicyCase{
            "pp2_interleaved",
            {.shape = {.pp = 2}, .schedule = ScheduleKind::interleaved, .virtual_stages = 2, .accumulation = 4}},
        PolicyCase{"pp2_zbv_two_updates",
                   {.shape = {.pp = 2}, .schedule = ScheduleKind::zbv, .virtual_stages = 2, .accumulation = 4},
                   Method::gspo,
                   2},
        PolicyCase{"zero1_two_updates", {.shape = {.shard = 2}, .zero = Zero::optimizer}, Method::grpo, 2},
        PolicyCase{"zero3_two_updates", {.shape = {.shard = 4}, .zero = Zero::parameters}, Method::gspo, 2},
        PolicyCase{"pp2_dp2_tp2_two_updates",
                   {.shape = {.pp = 2, .shard = 2, .tp = 2}, .zero = Zero::gradients, .accumulation = 2},
                   Method::grpo,
                   2},
        PolicyCase{"hsdp", {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::parameters}},
        PolicyCase{"lora_near_its_model", {.shape = {.shard = 2, .tp = 2}, .lora = kAdapters}, Method::grpo, 2, 0.1},
        PolicyCase{"lora_zero3_near_its_model",
                   {.shape = {.shard = 2}, .zero = Zero::parameters, .lora = kAdapters},
                   Method::grpo,
                   1,
                   0.1},
        PolicyCase{"qlora_tp2", {.shape = {.tp = 2}, .lora = kNf4Adapters}},
        PolicyCase{"moe_ep2_tp2", {.shape = {.shard = 2, .tp = 2, .ep = 2}, .experts = 4}},
        PolicyCase{"moe_dp4_ep2", {.shape = {.shard = 4, .ep = 2}, .experts = 4}},
        PolicyCase{"cp2", {.shape = {.cp = 2}}, Method::dapo},
        PolicyCase{
            "cp3_zero3_two_updates", {.shape = {.shard = 2, .cp = 3}, .zero = Zero::parameters}, Method::grpo, 2},
        PolicyCase{
            "cp2_tp2_pp2_two_updates", {.shape = {.pp = 2, .cp = 2, .tp = 2}, .accumulation = 4}, Method::dr_grpo, 2},
        PolicyCase{"cp2_dp2_gspo_two_updates", {.shape = {.shard = 2, .cp = 2}, .accumulation = 2}, Method::gspo, 2},
        PolicyCase{"cp2_lora_near_its_model", {.shape = {.cp = 2}, .lora = kAdapters}, Method::gspo, 1, 0.1},
        PolicyCase{"far_stages", kFarStages}, PolicyCase{"states_tp2", {.family = "qwen3_5", .shape = {.tp = 2}}},
        PolicyCase{"tied_pp2", {.shape = {.pp = 2}, .accumulation = 2, .tie = true}}),
    [](const auto& test) { return test.param.name; });

TEST_P(PolicyMeshTest, AnswersAndLearnsAsOneRank) { expect_answers_and_learning_of_one_rank(GetParam()); }

// Where all of a model is trained its reference is the one that training starts from: at first there is no
// divergence, and a weight on it keeps it small.
TEST(PolicyTrainingTest, TheReferenceIsTheModelThatTrainingStartsFrom) {
  const TemporaryFolder folder;
  Recipe r = policy_recipe({.shape = {.cp = 2, .tp = 2}}, Method::grpo);
  r.optimizer.adamw.eps = 1e-6, r.optimizer.schedule.lr = 3e-3;
  const auto start = [&] {
    const TrainedRun none;
    Recipe one = r;
    one.mesh = {};
    one.train.micro_batch = one.train.global_batch, one.policy = {};
    return open_model(saved_model(one, folder.path()));
  }();
  std::vector<double> last;
  for (const double beta : {1e-9, 30.0}) {
    r.policy.beta = beta;
    Recipe begun = r;
    begun.model_path = start->path();
    const TemporaryFolder data_folder;
    begun.data.train = prompts_file(data_folder.path(), "e"), begun.data.cache_dir = data_folder.path();
    begun.data.valid_fraction = 0, begun.log.dir = data_folder.path();
    const Dataset data = open_data(begun);
    run_ranks(4, [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const auto batches = batches_for(begun, data);
      Trainer trainer(rank.context, world, begun, *batches);
      start_from(*start, begun, trainer);
      const auto objective = make_objective(
          begun, {.data = data, .batches = *batches, .start = start.get(), .make_answerer = answerer_with_many_ends},
          trainer);
      trainer.set_objective(objective.get());
      for (int i = 0; i < 12; ++i) {
        trainer.step();
        const double kl = objective->figures(trainer)->kl.value();
        if (i == 0) EXPECT_LE(kl, 1e-9);
        if (i == 11 && world.rank() == 0) last.push_back(kl);
      }
    });
  }
  EXPECT_GT(last[0], 1e-2);
  EXPECT_LT(last[1], last[0] / 4);
}

// Prompts whose answers are all worth the same make room for others, on every mesh alike.
TEST(PolicyTrainingTest, PromptsOfWhichNothingIsLearnedAreReplaced) {
  const auto learned = [](const MeshCase& mesh, int64_t attempts) {
    Recipe r = policy_recipe(mesh, Method::dapo);
    r.policy.reward = RewardKind::contains, r.policy.attempts = attempts;
    return learn(r, 3);
  };
  const MeshCase one{.accumulation = 4}, many{.shape = {.shard = 4}, .zero = Zero::parameters, .accumulation = 1};
  const Learned first = learned(one, 1), some = learned(one, 6), same = learned(many, 6);
  EXPECT_EQ(same.sequences, some.sequences);
  const Difference d = difference(same.run, some.run);
  EXPECT_LE(d.gradient, 5 * tolerance_of(recipe_of(many))) << d.gradient_name;
  // Answers rarely have the letter; where one of a prompt's has it, it is kept.
  const auto groups_with_some = [](const Learned& l) {
    int count = 0;
    for (size_t group = 0; group < l.sequences.size(); group += 4) {
      int have = 0;
      for (size_t i = group; i < group + 4; ++i) {
        const auto& tokens = l.sequences[i];
        have += std::find(tokens.begin() + 3, tokens.end(), 'e') != tokens.end();
      }
      count += have > 0 && have < 4;
    }
    return count;
  };
  EXPECT_GT(groups_with_some(some), groups_with_some(first));
  // Figures are of the first attempt.
  EXPECT_EQ(some.figures[0].reward, first.figures[0].reward);
  EXPECT_EQ(some.figures[0].alike, first.figures[0].alike);
  EXPECT_GT(first.figures[0].alike, 0);
}

// How long rows are, and so how many answers lie in one, changes nothing but what a step computes.
TEST(PolicyTrainingTest, AnswersShareRows) {
  for (const MeshCase& mesh :
       {MeshCase{.accumulation = 4}, MeshCase{.shape = {.pp = 2, .shard = 2}, .accumulation = 4}}) {
    Recipe r = policy_recipe(mesh, Method::grpo, 2, 0);
    r.model.context = 96;
    const Learned alone = learn(r, 4);
    r.train.seq_len = 96;
    const Learned together = learn(r, 4);
    EXPECT_EQ(together.sequences, alone.sequences);
    const Difference d = difference(together.run, alone.run);
    const double tolerance = 5 * tolerance_of(recipe_of(mesh));
    EXPECT_LE(d.gradient, tolerance) << d.gradient_name;
    EXPECT_LE(d.weight, tolerance) << d.weight_name;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(together.figures[i].gap.has_value(), i % 2 == 0);
      EXPECT_LT(together.tokens[i], 96 * r.train.global_batch) << i;  // a row to each
    }
  }
}

TEST(PolicyBatchesTest, RowsHoldAnswersThatHaveAGradient) {
  const TemporaryFolder folder;
  Recipe r = policy_recipe({}, Method::grpo);
  r.train.seq_len = 10, r.train.global_batch = 8, r.train.micro_batch = 1, r.train.accumulation = 8;
  r.policy.max_tokens = 4;
  const std::vector<Prompt> prompts = {{{65, 66}, "", "{}"}, {{67, 68, 69}, "", "{}"}};
  PolicyBatches batches(r, prompts);
  EXPECT_EQ(batches.num_micro_batches(0, 8), 8);  // nobody knows yet
  const auto answers = [](const std::vector<size_t>& lengths, double advantage) {
    std::vector<PolicyBatches::Answer> all;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto first = int32_t(10 * i);
      all.push_back({.tokens = {first, first + 1}, .prompt = 2, .advantage = advantage, .weight = 1});
      for (size_t t = 0; t < lengths[i]; ++t) all.back().tokens.push_back(first + 2 + int32_t(t));
    }
    return all;
  };
  // Of 5, 3, 2, 5, 2, 4 tokens and so many more but one as prompts have.
  auto some = answers({4, 2, 1, 4, 1, 3, 3, 4}, 0.5);
  some[6].advantage = 0, some[7].weight = 0;  // nothing is learned from these
  batches.begin(0, some);
  EXPECT_EQ(batches.num_micro_batches(0, 8), 3);
  EXPECT_EQ(batches.num_micro_batches(0, 2), 1);  // of four rows each
  Batch batch;
  batches.fill(0, 0, 4, batch);
  EXPECT_EQ(batch.sequence_starts, (std::vector<int32_t>{0, 5, 10, 14, 17, 19, 20, 22, 30, 40}));
  EXPECT_EQ(batch.num_targets, 4 + 2 + 1 + 4 + 1 + 3);
  const auto row = [](const std::vector<int32_t>& of, int32_t i) {
    return std::vector<int32_t>(of.begin() + i * 10, of.begin() + (i + 1) * 10);
  };
  EXPECT_EQ(row(batch.ids, 0), (std::vector<int32_t>{0, 1, 2, 3, 4, 30, 31, 32, 33, 34}));
  EXPECT_EQ(row(batch.targets, 0), (std::vector<int32_t>{-1, 2, 3, 4, 5, -1, 32, 33, 34, 35}));
  EXPECT_EQ(row(batch.positions, 0), (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(row(batch.ids, 1), (std::vector<int32_t>{50, 51, 52, 53, 10, 11, 12, 20, 21, 0}));
  EXPECT_EQ(row(batch.ids, 2), (std::vector<int32_t>{40, 41, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row(batch.targets, 3), std::vector<int32_t>(10, -1));
  // Beside a reference, and where tokens choose experts, all have one.
  r.policy.beta = 0.1;
  batches.begin(0, some);
  EXPECT_EQ(batches.num_micro_batches(0, 8), 3);
  r.policy.beta = 0;
  batches.begin(0, answers({4, 4, 4, 4, 4, 4, 4, 4}, 0));
  EXPECT_EQ(batches.num_micro_batches(0, 8), 1);
  batches.fill(0, 0, 1, batch);
  EXPECT_EQ(batch.num_targets, 0);
  r.model.experts = 2;
  batches.begin(0, answers({4, 4, 4, 4, 4, 4, 4, 4}, 0));
  EXPECT_EQ(batches.num_micro_batches(0, 8), 4);
}

// A round that a run goes on in is answered anew, by the model as it is; at its beginning that is the same round.
TEST(PolicyTrainingTest, PromptsAndSeedsAreFunctionsOfTheStep) {
  const TemporaryFolder folder;
  Recipe r = policy_recipe({}, Method::grpo);
  r.data.train = prompts_file(folder.path(), "e"), r.data.cache_dir = folder.path() + "/cache";
  r.data.valid_fraction = 0;
  const Dataset data = open_data(r);
  const PolicyBatches batches(r, data.prompts);
  std::map<const Prompt*, int> asked;
  for (int64_t round = 0; round < 3; ++round)  // two prompts a round: an epoch
    for (int64_t row = 0; row < 8; ++row) ++asked[&batches.prompt_of(round, row)];
  EXPECT_EQ(asked.size(), 6);
  for (const auto& [prompt, times] : asked) EXPECT_EQ(times, 4);
  EXPECT_EQ(&batches.prompt_of(1, 0), &batches.prompt_of(1, 3));
  EXPECT_NE(&batches.prompt_of(1, 3), &batches.prompt_of(1, 4));
}

TEST(PolicyTrainingTest, PromptsThatLeaveNoRoomAreLeftOut) {
  Recipe r = policy_recipe({}, Method::grpo);
  const auto prompt = [](size_t tokens, std::string answer) {
    return Prompt{std::vector<int32_t>(tokens, 65), std::move(answer), "{}"};
  };
  const std::vector<Prompt> prompts = {prompt(13, ""), prompt(14, ""), prompt(3, "")};
  const PolicyBatches batches(r, prompts);
  EXPECT_EQ(batches.num_prompts(), 2);
  EXPECT_EQ(batches.num_left_out(), 1);
  EXPECT_THROW(PolicyBatches(r, {prompts.begin() + 1, prompts.begin() + 2}), UsageError);
  r.policy.reward = RewardKind::number;
  EXPECT_THROW(PolicyBatches(r, prompts), UsageError);  // nothing to compare answers with
}

// Answers come to be what another model likes, on any mesh alike.
TEST(PolicyTrainingTest, LearnsWhatARewardModelLikes) {
  const TemporaryFolder folder;
  Recipe of_judge = policy_recipe({}, Method::grpo);
  of_judge.model.labels = 1, of_judge.train.seed = 5;
  complete(of_judge.model);
  const std::unique_ptr<ModelSource> judge = open_model(saved_model(of_judge, folder.path(), 0));
  std::vector<double> first;
  for (const MeshCase& mesh : {MeshCase{}, MeshCase{.shape = {.shard = 2, .tp = 2}}, MeshCase{.shape = {.pp = 2}},
                               MeshCase{.shape = {.cp = 2}}}) {
    Recipe r = policy_recipe(mesh, Method::grpo);
    r.policy.reward = RewardKind::model;
    r.optimizer.adamw.eps = 1e-8, r.optimizer.schedule.lr = 2e-2;
    const Learned learned = learn(r, 30, "e", nullptr, judge.get());
    const auto mean = [&](size_t begin, size_t end) {
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += learned.figures[i].reward;
      return sum / double(end - begin);
    };
    EXPECT_GT(mean(20, 30), mean(0, 3) + 0.1) << name_of(mesh);
    first.push_back(learned.figures.front().reward);
    EXPECT_NEAR(first.back(), first.front(), 1e-5) << name_of(mesh);
    EXPECT_GT(learned.figures.front().reward_std, 1e-2);
  }
}

}  // namespace
}  // namespace weft
