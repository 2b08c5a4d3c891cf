// Models that score texts: classes are learned on every mesh as on one rank, and recipes say what goes together.
#include "support/message_of.h"
#include "train/mesh_cases.h"
#include "weft/base/toml.h"
#include "weft/data/packed_rows.h"
#include "weft/models/model_json.h"
#include "weft/train/evaluate.h"
#include "weft/train/launch.h"
#include "weft/train/objectives.h"

namespace weft {
namespace {

constexpr int64_t kClasses = 3;

// The class is the letter that a text ends with.
std::string classes_file(const std::string& folder) {
  std::string text;
  for (int i = 0; i < 24; ++i)
    text += fmt::format("{{\"text\": \"{}{}\", \"label\": {}}}\n", std::string(size_t(1 + i % 6), char('k' + i % 7)),
                        char('a' + i % 3), i % 3);
  std::string path = folder + "/classes.jsonl";
  write_file_atomically(FileSystem::real(), path, std::string_view(text));
  return path;
}

Recipe classes_recipe(const MeshCase& mesh) {
  Recipe r = recipe_of(mesh);
  r.model.vocab = 259, r.model.context = 24;  // bytes
  r.model.labels = kClasses;
  complete(r.model);
  r.train.seq_len = 24;
  make_smooth(r);
  return r;
}

template <class Body>
auto on_classes(Recipe recipe, Body body) {
  const TemporaryFolder folder;
  recipe.data.train = recipe.data.valid = classes_file(folder.path());
  recipe.data.cache_dir = folder.path() + "/cache", recipe.data.valid_fraction = 0;
  recipe.log.dir = folder.path();
  const Dataset data = open_data(recipe);
  std::invoke_result_t<Body, Trainer&, const Dataset&> result;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const auto batches = batches_for(recipe, data.train);
    Trainer trainer(rank.context, world, recipe, *batches);
    auto mine = body(trainer, data);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

TrainedRun train_classes(const Recipe& recipe, int steps) {
  return on_classes(recipe, [&](Trainer& trainer, const Dataset&) { return take_steps(recipe, trainer, steps); });
}

const LoraConfig kClassAdapters{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets};
const MeshCase kClassMeshes[] = {
    {.shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .accumulation = 2},
    {.shape = {.tp = 3}, .tie = true},
    {.shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "gpt2", .shape = {.pp = 2, .tp = 2}, .accumulation = 4},
    {.shape = {.pp = 2, .cp = 2}, .accumulation = 2},
    {.family = "gemma2", .shape = {.tp = 2}, .lora = kClassAdapters},
};

class ClassesMeshTest : public testing::TestWithParam<MeshCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, ClassesMeshTest, testing::ValuesIn(kClassMeshes),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(ClassesMeshTest, EqualsOneRank) {
  const MeshCase& mesh = GetParam();
  const TrainedRun one = train_classes(classes_recipe(on_one_rank(mesh)), 3);
  const Difference d = difference(train_classes(classes_recipe(mesh), 3), one);
  EXPECT_LE(d.loss, 1e-5);
  EXPECT_LE(d.gradient, 1e-5) << d.gradient_name;
  EXPECT_LE(d.weight, 1e-5) << d.weight_name;
}

// At first each class is as likely as another.
TEST(ClassesTest, AreLearned) {
  Recipe recipe = classes_recipe({});
  recipe.model.init_std = 0.02f;
  recipe.optimizer.adamw.eps = 1e-8, recipe.optimizer.schedule.lr = 3e-3;
  const TrainedRun run = train_classes(recipe, 60);
  EXPECT_NEAR(run.losses.front(), std::log(double(kClasses)), 0.2);
  EXPECT_LT(run.losses.back(), 0.1);
}

// The right class has the highest score: as often on every mesh, and in the end always.
TEST(ClassesTest, AccuracyIsCounted) {
  const auto counted_on = [](const MeshCase& mesh, int steps) {
    Recipe recipe = classes_recipe(mesh);
    recipe.model.init_std = 0.1f;
    recipe.optimizer.adamw.eps = 1e-8, recipe.optimizer.schedule.lr = 3e-3;
    return on_classes(recipe, [&](Trainer& trainer, const Dataset& data) {
      const auto batches = batches_for(recipe, data.train);
      const auto objective = make_objective(recipe, {.data = data, .batches = *batches}, trainer);
      trainer.set_objective(objective.get());
      for (int i = 0; i < steps; ++i) trainer.step();
      EXPECT_EQ(objective->accuracy(trainer), std::nullopt);  // nothing was evaluated
      Batch batch;
      for (int64_t step = 0; step < 4; ++step) {
        const auto rows = int32_t(recipe.train.global_batch / trainer.mesh().shape().dp());
        for (int32_t row = 0; row < rows; row += int32_t(recipe.train.micro_batch)) {
          batches->fill(step, int32_t(trainer.mesh().data_rank()) * rows + row, int32_t(recipe.train.micro_batch),
                        batch);
          trainer.evaluate(batch);
        }
      }
      return objective->accuracy(trainer).value_or(-1);
    });
  };
  const double first = counted_on({}, 0);
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 0.8);
  for (const MeshCase& mesh :
       {MeshCase{.shape = {.shard = 2, .tp = 2}}, MeshCase{.shape = {.tp = 2}, .sequence_parallel = true},
        MeshCase{.shape = {.pp = 2, .cp = 2}}})
    EXPECT_EQ(counted_on(mesh, 0), first) << name_of(mesh);
  EXPECT_EQ(counted_on({}, 60), 1);
}

// A text is read whole, and its class is what its last token predicts.
TEST(ClassesTest, OfATextTheLastTokenHasATarget) {
  const TemporaryFolder folder;
  Recipe recipe = classes_recipe({});
  recipe.data.train = folder.path() + "/two.jsonl", recipe.data.cache_dir = folder.path() + "/cache";
  write_file_atomically(
      FileSystem::real(), recipe.data.train,
      std::string_view("{\"text\": \"ab\", \"label\": 2}\n"
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}], \"label\": 1}\n"));
  recipe.data.valid_fraction = 0, recipe.train.global_batch = recipe.train.micro_batch = 2;
  recipe.train.seq_len = 48;
  const Dataset data = open_data(recipe);
  const auto batches = batches_for(recipe, data.train);
  EXPECT_EQ(batches->num_targets(0), 4);  // of both texts twice: a row holds them
  Batch batch;
  batches->fill(0, 0, 2, batch);
  std::vector<std::pair<int32_t, int32_t>> found;
  for (size_t t = 0; t < batch.ids.size(); ++t)
    if (batch.targets[t] >= 0) found.emplace_back(batch.ids[t], batch.targets[t]);
  std::ranges::sort(found);
  EXPECT_EQ(found, (std::vector<std::pair<int32_t, int32_t>>{{'b', 2}, {'b', 2}, {'c', 1}, {'c', 1}}));
}

struct RefusedClass {
  const char *name, *json, *message;
};
class ClassesRefusedTest : public testing::TestWithParam<RefusedClass> {};
INSTANTIATE_TEST_SUITE_P(
    Examples, ClassesRefusedTest,
    testing::Values(RefusedClass{"too_large", R"({"text": "a", "label": 3})", "from 0 to 2, as model.labels = 3"},
                    RefusedClass{"negative", R"({"text": "a", "label": -1})", "from 0 to 2"},
                    RefusedClass{"words", R"({"text": "a", "label": "good"})", "must be a whole number"},
                    RefusedClass{"no_label", R"({"text": "a"})", "\"label\" is missing"},
                    RefusedClass{"no_text", R"({"label": 1})", "\"messages\" is missing"},
                    RefusedClass{"no_object", R"([1])", "must be an object"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ClassesRefusedTest, IsNamed) {
  const TemporaryFolder folder;
  Recipe recipe = classes_recipe({});
  recipe.data.train = folder.path() + "/bad.jsonl", recipe.data.cache_dir = folder.path() + "/cache";
  write_file_atomically(FileSystem::real(), recipe.data.train, std::string_view(GetParam().json));
  const std::string message = message_of([&] { open_data(recipe); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_NE(message.find("bad.jsonl"), std::string::npos) << message;
}

// ---- recipes ----

constexpr std::string_view kScoreModel = "[model]\nlayers = 1\nhidden = 8\nheads = 2\n";
constexpr std::string_view kScoreRest =
    "[train]\nsteps = 1\nseq_len = 8\nglobal_batch = 1\n[data]\ntrain = \"x.jsonl\"\n";

Recipe read_scoring(std::string_view model, std::string_view rest) {
  Toml toml = Toml::parse(fmt::format("{}{}\n{}{}", kScoreModel, model, kScoreRest, rest), "r.toml");
  return read_recipe(toml);
}

struct ScoreCombination {
  const char *name, *model, *rest, *message;
};
class ScoreRecipeTest : public testing::TestWithParam<ScoreCombination> {};
INSTANTIATE_TEST_SUITE_P(
    Recipes, ScoreRecipeTest,
    testing::Values(
        ScoreCombination{"classes", "labels = 4", "", ""},
        ScoreCombination{"reward", "labels = 1", "[preference]\nmethod = \"reward\"\ncenter = 0.01", ""},
        ScoreCombination{"reward_without_label", "", "[preference]\nmethod = \"reward\"", "write model.labels = 1"},
        ScoreCombination{"reward_of_two", "labels = 2", "[preference]\nmethod = \"reward\"",
                         "write model.labels = 1"},
        ScoreCombination{"one_class", "labels = 1", "", "2 or more classes"},
        ScoreCombination{"dpo", "labels = 1", "[preference]\nmethod = \"dpo\"", "model.labels"},
        ScoreCombination{"beta", "labels = 1", "[preference]\nmethod = \"reward\"\nbeta = 0.1", "preference.beta"},
        ScoreCombination{"rl", "labels = 2", "[rl]\nanswers = 8\nupdates = 8", "model.labels"},
        ScoreCombination{"format", "labels = 2", "format = \"chat\"", "data.format"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ScoreRecipeTest, SaysWhatGoesTogether) {
  const ScoreCombination& c = GetParam();
  if (std::string_view(c.message).empty()) {
    EXPECT_EQ(read_scoring(c.model, c.rest).model.labels, c.model[9] - '0');
    return;
  }
  const std::string message = message_of([&] { read_scoring(c.model, c.rest); });
  EXPECT_NE(message.find(c.message), std::string::npos) << message;
}

// ---- shapes ----

TEST(ScoreHeadTest, IsNeitherTiedNorScaledNorCapped) {
  ModelConfig c = family_defaults("gemma2");
  c.layers = 2, c.hidden = 16, c.heads = 2, c.head_dim = 8, c.ffn = 24, c.vocab = 40, c.context = 16;
  c.labels = 3;
  complete(c);
  EXPECT_FALSE(c.tie_embeddings);
  EXPECT_EQ(c.logit_softcap, 0);
  int64_t sum = 0;
  Decoder model(c);
  for (const Param* p : model.params()) sum += p->shape.numel();
  EXPECT_EQ(c.num_params(), sum);
  EXPECT_EQ(model.head().weight->name, kScoreName);
  EXPECT_EQ(parse_model_json(to_json(c), "model.json"), c);
}

}  // namespace
}  // namespace weft
