// Preference training: losses and slopes by the published formulas, and every mesh as one rank.
#include "weft/train/preference.h"

#include "base/temporary_folder.h"
#include "train/mesh_cases.h"
#include "weft/base/ceil_div.h"
#include "weft/base/toml.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/launch.h"
#include "weft/train/memory_estimate.h"
#include "weft/train/objectives.h"
#include "weft/train/preference_objective.h"

namespace weft {
namespace {

// ---- the formulas ----

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(PreferenceLossTest, DpoIsThePapersEquation7) {
  const PreferenceConfig c{.method = PreferenceMethod::dpo, .beta = 0.3};
  const Answer chosen{-12, -14, 5}, rejected{-20, -17, 7};
  const PairLoss loss = dpo_loss(c, chosen, rejected);
  const double z = 0.3 * ((-12.0 + 14) - (-20.0 + 17));
  EXPECT_NEAR(loss.loss, -std::log(sigmoid(z)), 1e-12);
  EXPECT_NEAR(loss.dchosen, -0.3 * sigmoid(-z), 1e-12);
  EXPECT_EQ(loss.drejected, -loss.dchosen);
}

TEST(PreferenceLossTest, FiguresOfTrl) {
  // torch in float64 by the formulas of TRL's dpo_loss (sigmoid), odds_ratio_loss and kto_loss.
  const Answer chosen{-12.5, -13.25, 5}, rejected{-21, -19.5, 8};
  const PairLoss dpo =
      dpo_loss({.method = PreferenceMethod::dpo, .beta = 0.1, .label_smoothing = 0.1}, chosen, rejected);
  EXPECT_NEAR(dpo.loss, 0.6094620020497037, 1e-12);
  const PairLoss orpo = orpo_loss({.method = PreferenceMethod::orpo, .beta = 0.25}, chosen, rejected, 0.125);
  EXPECT_NEAR(orpo.loss, 1.7194280981339252, 1e-12);
  const PreferenceConfig kto{
      .method = PreferenceMethod::kto, .beta = 0.2, .desirable_weight = 1.5, .undesirable_weight = 0.5};
  EXPECT_NEAR(kto_loss(kto, chosen, true, 0.3).loss, 0.7162727628122998, 1e-12);
  EXPECT_NEAR(kto_loss(kto, rejected, false, 0.3).loss, 0.20547978297066744, 1e-12);
}

TEST(PreferenceLossTest, RewardsAreOrderedAsBradleyAndTerrySay) {
  const PairLoss loss = score_pair_loss({.method = PreferenceMethod::reward}, {1.5}, {-0.25});
  EXPECT_NEAR(loss.loss, -std::log(sigmoid(1.75)), 1e-12);
  EXPECT_NEAR(loss.dchosen, -sigmoid(-1.75), 1e-12);
  EXPECT_EQ(loss.drejected, -loss.dchosen);
  // TRL's center_rewards_coefficient
  const PairLoss centered = score_pair_loss({.method = PreferenceMethod::reward, .center = 0.01}, {1.5}, {-0.25});
  EXPECT_NEAR(centered.loss, loss.loss + 0.01 * 1.25 * 1.25, 1e-12);
}

TEST(PreferenceLossTest, SlopesAreCentralDifferences) {
  constexpr double kStep = 1e-5;
  for (const double shift : {-30.0, -1.0, 0.0, 2.0, 25.0}) {
    const Answer chosen{-40 + shift, -41, 9}, rejected{-38, -37.5, 11};
    const auto check = [&](const char* name, auto&& loss_of) {
      const auto moved = [&](double c, double r) {
        Answer a = chosen, b = rejected;
        a.logp += c, b.logp += r;
        return loss_of(a, b).loss;
      };
      const PairLoss loss = loss_of(chosen, rejected);
      EXPECT_NEAR(loss.dchosen, (moved(kStep, 0) - moved(-kStep, 0)) / (2 * kStep), 1e-8) << name << shift;
      EXPECT_NEAR(loss.drejected, (moved(0, kStep) - moved(0, -kStep)) / (2 * kStep), 1e-8) << name << shift;
    };
    check("dpo", [](const Answer& a, const Answer& b) {
      return dpo_loss({.method = PreferenceMethod::dpo, .beta = 0.1, .label_smoothing = 0.2}, a, b);
    });
    check("orpo", [](const Answer& a, const Answer& b) {
      return orpo_loss({.method = PreferenceMethod::orpo, .beta = 0.4}, a, b, 0.01);
    });
    check("reward", [](const Answer& a, const Answer& b) {
      return score_pair_loss({.method = PreferenceMethod::reward, .center = 0.03}, {a.logp + 39}, {b.logp + 39});
    });
    for (const bool is_desirable : {true, false})
      check("kto", [&](const Answer& a, const Answer&) {
        const AnswerLoss one = kto_loss({.method = PreferenceMethod::kto, .beta = 0.3}, a, is_desirable, 0.7);
        return PairLoss{one.loss, one.dlogp, 0};
      });
  }
}

// ---- meshes ----

std::string pairs_file(const std::string& folder, bool is_labelled) {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    const std::string good(size_t(2 + i % 4), char('a' + i)), bad(size_t(1 + i % 5), char('n' + i));
    if (is_labelled)
      text += fmt::format("{{\"prompt\": \"p{}:\", \"completion\": \"{}\", \"label\": {}}}\n", i, i % 3 ? good : bad,
                          i % 3 ? "true" : "false");
    else
      text += fmt::format("{{\"prompt\": \"p{}:\", \"chosen\": \"{}\", \"rejected\": \"{}\"}}\n", i, good, bad);
  }
  std::string path = folder + "/pairs.jsonl";
  write_file_atomically(FileSystem::real(), path, std::string_view(text));
  return path;
}

// Preference training of a small model on the recipe's mesh, over pairs that are validated too. Calls
// body(trainer, objective) on every rank; what it gives on the first is the result.
template <class Body>
auto on_pairs(Recipe recipe, Body body) {
  const TemporaryFolder folder;
  recipe.data.train = recipe.data.valid =
      pairs_file(folder.path(), recipe.preference.method == PreferenceMethod::kto);
  recipe.data.cache_dir = folder.path() + "/cache", recipe.data.valid_fraction = 0;
  recipe.log.dir = folder.path();
  const Dataset data = open_data(recipe);
  std::invoke_result_t<Body, Trainer&, Objective&> result;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const auto batches = batches_for(recipe, data.train), valid = batches_for(recipe, data.valid);
    Trainer trainer(rank.context, world, recipe, *batches);
    const auto objective = make_objective(recipe, {.data = data, .batches = *batches, .valid = valid.get()}, trainer);
    trainer.set_objective(objective.get());
    auto mine = body(trainer, *objective);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

TrainedRun train_preferences(const Recipe& recipe, int steps) {
  return on_pairs(recipe, [&](Trainer& trainer, Objective&) { return take_steps(recipe, trainer, steps); });
}

struct PreferenceCase {
  const char* name;
  PreferenceMethod method;
  MeshCase mesh;
};
class PreferenceMeshTest : public testing::TestWithParam<PreferenceCase> {};
const LoraConfig kAdapters{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets};
constexpr PreferenceMethod kDpo = PreferenceMethod::dpo, kOrpo = PreferenceMethod::orpo, kKto = PreferenceMethod::kto,
                           kReward = PreferenceMethod::reward;
INSTANTIATE_TEST_SUITE_P(
    Meshes, PreferenceMeshTest,
    testing::Values(
        PreferenceCase{"dpo_dp2", kDpo, {.shape = {.shard = 2}}},
        PreferenceCase{"dpo_tp2", kDpo, {.shape = {.tp = 2}}},
        PreferenceCase{"dpo_tp2_sp_lora", kDpo, {.shape = {.tp = 2}, .sequence_parallel = true, .lora = kAdapters}},
        PreferenceCase{"dpo_pp2", kDpo, {.shape = {.pp = 2}, .accumulation = 4}},
        PreferenceCase{"dpo_zero3_lora",
                       kDpo,
                       {.shape = {.shard = 2}, .zero = Zero::parameters, .accumulation = 2, .lora = kAdapters}},
        PreferenceCase{"dpo_pp2_dp2_tp2",
                       kDpo,
                       {.shape = {.pp = 2, .shard = 2, .tp = 2}, .zero = Zero::gradients, .accumulation = 2}},
        PreferenceCase{"orpo_dp2_tp2", kOrpo, {.shape = {.shard = 2, .tp = 2}}},
        PreferenceCase{
            "orpo_pp2_zero3", kOrpo, {.shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .accumulation = 2}},
        PreferenceCase{"dpo_cp2", kDpo, {.shape = {.cp = 2}}},
        PreferenceCase{"dpo_cp3_tp2_lora", kDpo, {.shape = {.cp = 3, .tp = 2}, .lora = kAdapters}},
        PreferenceCase{"orpo_pp2_cp2", kOrpo, {.shape = {.pp = 2, .cp = 2}, .accumulation = 2}},
        PreferenceCase{"kto_cp2_zero3", kKto, {.shape = {.shard = 2, .cp = 2}, .zero = Zero::parameters}},
        PreferenceCase{"kto_dp2_tp2", kKto, {.shape = {.shard = 2, .tp = 2}}},
        PreferenceCase{"kto_pp2_lora", kKto, {.shape = {.pp = 2}, .accumulation = 4, .lora = kAdapters}},
        PreferenceCase{"kto_zero3", kKto, {.shape = {.shard = 4}, .zero = Zero::parameters, .accumulation = 2}},
        PreferenceCase{"reward_dp2_tp2", kReward, {.shape = {.shard = 2, .tp = 2}}},
        PreferenceCase{
            "reward_tp2_sp_lora", kReward, {.shape = {.tp = 2}, .sequence_parallel = true, .lora = kAdapters}},
        PreferenceCase{"reward_pp2_tp3_tied", kReward, {.shape = {.pp = 2, .tp = 3}, .accumulation = 4, .tie = true}},
        PreferenceCase{"reward_zero3_tp2",
                       kReward,
                       {.shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .accumulation = 2}},
        PreferenceCase{"reward_cp2", kReward, {.shape = {.shard = 2, .cp = 2}, .zero = Zero::gradients}}),
    [](const auto& test) { return test.param.name; });

Recipe preference_recipe(const MeshCase& mesh, PreferenceMethod method) {
  Recipe r = recipe_of(mesh);
  r.model.vocab = 259, r.model.context = 24;  // bytes
  r.train.seq_len = 24;
  r.preference = {.method = method, .beta = 0.5};
  if (method == kReward) r.model.labels = 1, r.preference.center = 0.02, complete(r.model);
  make_smooth(r);
  return r;
}

TEST_P(PreferenceMeshTest, EqualsOneRank) {
  const PreferenceCase& c = GetParam();
  const TrainedRun one = train_preferences(preference_recipe(on_one_rank(c.mesh), c.method), 3);
  const Difference d = difference(train_preferences(preference_recipe(c.mesh, c.method), 3), one);
  EXPECT_LE(d.loss, 1e-5);
  EXPECT_LE(d.gradient, 1e-5) << d.gradient_name;
  EXPECT_LE(d.weight, 1e-5) << d.weight_name;
}

// Longer rows have several pairs, and a step has fewer of them.
TEST_P(PreferenceMeshTest, PairsShareRows) {
  Recipe alone = preference_recipe(GetParam().mesh, GetParam().method);
  alone.model.context = 96;
  Recipe together = alone;
  together.train.seq_len = 96;
  const Difference d = difference(train_preferences(together, 3), train_preferences(alone, 3));
  EXPECT_LE(d.loss, 1e-5);
  EXPECT_LE(d.gradient, 1e-5) << d.gradient_name;
  EXPECT_LE(d.weight, 1e-5) << d.weight_name;
}

TEST(PairBatchesTest, AStepsPairsLieInAsFewRowsAsWillDo) {
  const TemporaryFolder folder;
  Recipe recipe = preference_recipe({}, kDpo);
  recipe.train.seq_len = 64, recipe.train.global_batch = 9, recipe.train.micro_batch = 1;
  recipe.data.train = pairs_file(folder.path(), false), recipe.data.cache_dir = folder.path() + "/cache";
  const Dataset data = open_data(recipe);
  const auto source = batches_for(recipe, data.train);
  const auto& batches = dynamic_cast<const PairBatches&>(*source);
  for (int64_t step = 0; step < 5; ++step) {
    const PairBatches::Rows all = *batches.rows_of(step);
    ASSERT_EQ(all.items.size(), 9u);
    int64_t tokens = 0;
    for (const PairBatches::Item& item : all.items) tokens += item.lengths[0] + item.lengths[1];
    EXPECT_LE(int64_t(all.rows.size()), tokens / 64 + 2);
    EXPECT_LT(all.rows.size(), 9u);
    EXPECT_EQ(batches.num_micro_batches(step, 9), int64_t(all.rows.size()));
    EXPECT_EQ(batches.num_micro_batches(step, 3), ceil_div(int64_t(all.rows.size()), int64_t(3)));
    Batch batch;
    batches.fill(step, 0, 9, batch);
    std::vector<int32_t> starts;
    std::vector<bool> is_placed(9);
    int64_t targets = 0;
    for (size_t row = 0; row < 9; ++row) {
      int32_t end = 0;
      for (const PlacedItem& placed : row < all.rows.size() ? all.rows[row] : std::vector<PlacedItem>()) {
        const PairBatches::Item& item = all.items[size_t(placed.item)];
        ASSERT_FALSE(is_placed[size_t(placed.item)]);
        is_placed[size_t(placed.item)] = true;
        EXPECT_EQ(placed.begin, end);
        for (const int32_t length : item.lengths) starts.push_back(int32_t(row) * 64 + end), end += length;
        targets += batches.pair(item.pair).targets[0] + batches.pair(item.pair).targets[1];
      }
      ASSERT_LE(end, 64);
      if (end < 64) starts.push_back(int32_t(row) * 64 + end);
    }
    EXPECT_EQ(std::ranges::count(is_placed, true), 9);
    starts.push_back(9 * 64);
    EXPECT_EQ(batch.sequence_starts, starts);
    EXPECT_EQ(batch.num_targets, targets);
    for (size_t i = 0; i + 1 < starts.size(); ++i) EXPECT_EQ(batch.positions[size_t(starts[i])], 0);
  }
}

// ---- what is not trained ----

struct Validated {
  std::vector<double> losses;           // of steps
  std::vector<Validation> validations;  // before each step
};

// Steps over all pairs at once, so that what is validated is what a step sees.
Validated train_and_validate(Recipe recipe, int steps) {
  recipe.train.global_batch = 12, recipe.train.micro_batch = 2;
  recipe.train.accumulation = 6 / recipe.mesh.shape.dp();
  return on_pairs(recipe, [&](Trainer& trainer, Objective& objective) {
    Validated mine;
    for (int i = 0; i < steps; ++i) {
      mine.validations.push_back(objective.validate(trainer, [] { return false; }).value());
      mine.losses.push_back(trainer.step().loss);
    }
    return mine;
  });
}

class PreferenceValidationTest : public testing::TestWithParam<PreferenceMethod> {};
INSTANTIATE_TEST_SUITE_P(Methods, PreferenceValidationTest, testing::Values(kDpo, kOrpo, kKto, kReward));

// On any mesh.
TEST_P(PreferenceValidationTest, IsTheLossOfAStepOverTheSamePairs) {
  std::vector<Validated> runs;
  for (const MeshCase& mesh : {MeshCase{}, MeshCase{.shape = {.pp = 2, .shard = 3, .tp = 2}, .lora = {}},
                               MeshCase{.shape = {.shard = 2, .cp = 2}, .lora = {}}}) {
    Recipe recipe = preference_recipe(mesh, GetParam());
    recipe.optimizer.adamw.eps = 1e-4, recipe.optimizer.schedule.lr = 3e-3;
    runs.push_back(train_and_validate(recipe, 6));
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(runs.back().validations[i].loss, runs.back().losses[i], 1e-5) << i;
  }
  const Validation& one = runs[0].validations.back();
  EXPECT_LT(runs[0].losses.back(), 0.9 * runs[0].losses.front());
  ASSERT_EQ(one.preference.has_value(), GetParam() != kKto);
  for (const Validated& run : runs) {
    const Validation& other = run.validations.back();
    EXPECT_NEAR(one.loss, other.loss, 1e-4);
    if (!one.preference) continue;
    EXPECT_NEAR(one.preference->margin, other.preference->margin, 1e-4);
    EXPECT_EQ(one.preference->accuracy, other.preference->accuracy);
  }
}

// Nothing is preferred at first; in the end the right answers are, by as much as the loss says.
TEST(PreferenceTest, AccuracyAndMarginOfPairs) {
  Recipe recipe = preference_recipe({}, kDpo);
  recipe.optimizer.adamw.eps = 1e-8, recipe.optimizer.schedule.lr = 3e-3;
  const Validated run = train_and_validate(recipe, 30);
  EXPECT_NEAR(run.validations.front().loss, std::log(2), 1e-6);
  EXPECT_NEAR(run.validations.front().preference->margin, 0, 1e-6);
  const Validation& end = run.validations.back();
  EXPECT_EQ(end.preference->accuracy, 1);
  EXPECT_GE(end.loss, -std::log(sigmoid(end.preference->margin)) - 1e-9);  // by Jensen's inequality
  EXPECT_LT(end.loss, 0.2);
}

TEST(PreferenceLossTest, RewardsAreThoseOfTheLosses) {
  const Answer a{-12, -14, 6};
  EXPECT_DOUBLE_EQ(reward({.method = kDpo, .beta = 0.3}, a), 0.3 * 2);
  EXPECT_DOUBLE_EQ(reward({.method = kKto, .beta = 0.3}, a), 0.3 * 2);
  EXPECT_DOUBLE_EQ(reward({.method = kOrpo, .beta = 0.3}, a), 0.3 * -2);
  EXPECT_DOUBLE_EQ(reward({.method = kReward, .beta = 0.3}, a), -12);
}

// At the start the model is its own reference.
TEST(PreferenceTest, FirstDpoLossIsThatOfACoinAndFalls) {
  Recipe recipe = preference_recipe({}, kDpo);
  recipe.optimizer.adamw.eps = 1e-8, recipe.optimizer.schedule.lr = 3e-3;
  const TrainedRun run = train_preferences(recipe, 30);
  EXPECT_NEAR(run.losses.front(), std::log(2), 1e-6);
  EXPECT_LT(run.losses.back(), 0.2);
}

// What a run keeps beside its checkpoints goes on with the same pairs alone, however many others there are.
TEST(PreferenceTest, AReferenceIsOfItsPairs) {
  const TemporaryFolder folder;
  const auto pairs_of = [&](const std::string& name, const std::string& chosen, int64_t seq_len) {
    const TemporaryFolder data;
    Recipe recipe = preference_recipe({}, kDpo);
    recipe.train.seq_len = seq_len;
    recipe.data.train = data.path() + "/" + name, recipe.data.cache_dir = folder.path() + "/" + name;
    std::string text;
    for (const std::string& good : {chosen, std::string("long enough")})
      text += fmt::format("{{\"prompt\": \"p\", \"chosen\": \"{}\", \"rejected\": \"bad\"}}\n", good);
    write_file_atomically(FileSystem::real(), recipe.data.train, std::string_view(text));
    auto batches = batches_for(recipe, open_data(recipe).train);
    return std::unique_ptr<PairBatches>(dynamic_cast<PairBatches*>(batches.release()));
  };
  const auto pairs = pairs_of("a.jsonl", "good", 64), same = pairs_of("b.jsonl", "good", 128);
  const auto other = pairs_of("c.jsonl", "gold", 64), cut = pairs_of("d.jsonl", "good", 16);
  const std::string path = folder.path() + "/reference.f64";
  save_reference({pairs.get(), {-1, -2, -3.5, -4}}, path);
  ReferredPairs read{same.get()};
  load_reference(read, path);
  EXPECT_EQ(read.reference, (std::vector<double>{-1, -2, -3.5, -4}));
  for (const PairBatches* const wrong : {other.get(), cut.get()}) {
    ReferredPairs refused{wrong};
    EXPECT_EQ(wrong->num_pairs(), 2);
    try {
      load_reference(refused, path);
      FAIL() << "taken";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("reference.f64 is of other pairs than these 2"), std::string::npos)
          << e.what();
    }
    EXPECT_TRUE(refused.reference.empty());
  }
}

TEST_P(PreferenceMeshTest, TakesWhatTheEstimateSays) {
  const Recipe recipe = preference_recipe(GetParam().mesh, GetParam().method);
  const std::vector<MemoryEstimate> estimates = estimate_memory(recipe);
  on_pairs(recipe, [&](Trainer& trainer, Objective&) {
    for (int i = 0; i < 3; ++i) trainer.step();
    const AllocatorStats stats = trainer.context().stream.allocator().stats();
    const MemoryEstimate& estimate = estimates[size_t(trainer.mesh().world().rank())];
    EXPECT_EQ(stats.live_bytes, estimate.state_bytes);
    // Where pairs leave rows empty, heads have fewer targets than there may be.
    EXPECT_LE(stats.peak_bytes, estimate.peak_bytes);
    EXPECT_GT(double(stats.peak_bytes), 0.95 * double(estimate.peak_bytes));
    return 0;
  });
}

TEST(PreferenceTest, RecipesSayHow) {
  const std::string rest = "[data]\ntrain = \"x\"\n[model]\nlayers = 1\nhidden = 8\nheads = 2\n";
  const auto read = [&](const std::string& text) {
    Toml toml = Toml::parse(rest + text, "r.toml");
    return read_recipe(toml);
  };
  const std::string train = "[train]\nseq_len = 8\nglobal_batch = 2\n";
  const Recipe r = read(train + "[preference]\nmethod = \"kto\"\nbeta = 0.2\ndesirable_weight = 2\n");
  EXPECT_EQ(r.preference.method, kKto);
  EXPECT_EQ(r.preference.beta, 0.2);
  EXPECT_EQ(r.preference.desirable_weight, 2);
  EXPECT_EQ(r.data.valid_fraction, 0);
  Toml resolved = Toml::parse(r.text, "recipe.toml");  // as a run keeps it
  EXPECT_EQ(read_recipe(resolved).data.valid_fraction, 0);
  EXPECT_THROW(read(train + "[preference]\nmethod = \"ppo\"\n"), UsageError);
  const std::string part =
      "[data]\ntrain = \"x\"\nvalid_fraction = 0.1\n[model]\nlayers = 1\nhidden = 8\nheads = 2\n";
  Toml cut_off = Toml::parse(part + train + "[preference]\n", "r.toml");
  EXPECT_THROW(read_recipe(cut_off), UsageError);
  EXPECT_THROW(read(train + "[preference]\nmethod = \"orpo\"\ndesirable_weight = 2\n"), UsageError);
  EXPECT_THROW(read("[train]\nseq_len = 9\nglobal_batch = 2\n[preference]\n"), UsageError);
  EXPECT_THROW(read(train + "[preference]\n[distill]\nteacher = \"x\"\n"), UsageError);
}

}  // namespace
}  // namespace weft
