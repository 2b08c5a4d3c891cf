// A part that predicts a token further on, trained beside the model: what recipes say of it, where it starts, what it
// learns, and how it is saved.
#include "base/temporary_folder.h"
#include "train/training_setup.h"
#include "weft/pretrained/decoder_parts.h"
#include "weft/pretrained/model_source.h"
#include "weft/train/memory_estimate.h"
#include "weft/train/model_parts.h"
#include "weft/train/start_from.h"

namespace weft {
namespace {

Recipe recipe_with_part(const MeshShape& mesh = {}, Zero zero = Zero::none, int64_t accumulation = 1) {
  Recipe r = small_recipe("llama", Precision::fp32, mesh.dp(), accumulation);
  r.model.mtp_layers = 1;
  complete(r.model);
  r.optimizer.adamw.eps = 1e-4;
  r.mesh.shape = mesh, r.mesh.zero = zero;
  return r;
}

Recipe without_part(Recipe r) {
  r.model.mtp_layers = 0;
  return r;
}

// text: of [model], and of sections that follow it.
Recipe read(const std::string& text) {
  const std::string rest = "[data]\ntrain = \"x\"\n[train]\nglobal_batch = 8\nseq_len = 16\n";
  Toml toml = Toml::parse("[model]\n" + text + rest, "recipe.toml");
  return read_recipe(toml);
}

void expect_refused(const std::string& text, std::string_view what) {
  try {
    Recipe r = read("layers = 2\nhidden = 32\nheads = 4\n" + text);
    set_vocab(r, 257);
    ADD_FAILURE() << text << " was taken";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string_view(e.what()).find(what), std::string_view::npos) << e.what();
  }
}

TEST(MtpRecipeTest, AsksForThePart) {
  const Recipe r = read("mtp_layers = 1\nmtp_loss = 0.3\n");
  EXPECT_EQ(r.model.mtp_layers, 1);
  EXPECT_EQ(r.model.mtp_loss, 0.3);
  EXPECT_EQ(read("").model.mtp_layers, 0);
}

TEST(MtpRecipeTest, RefusesWhatCannotBe) {
  expect_refused("mtp_layers = 2\n", "model.mtp_layers = 2: write 0 or 1");
  expect_refused("mtp_layers = 1\nmtp_loss = 0\n", "model.mtp_loss = 0");
  expect_refused("mtp_loss = 0.1\n", "write model.mtp_layers as well");
  expect_refused("family = \"gpt2\"\nmtp_layers = 1\n", "rotary positions");
  expect_refused("mtp_layers = 1\n[lora]\nrank = 4\n", "model.mtp_layers");
  expect_refused("mtp_layers = 1\n[preference]\nbeta = 0.2\n", "model.mtp_layers");
  expect_refused("mtp_layers = 1\n[distill]\nteacher = \"other\"\n", "model.mtp_layers");
}

TEST(MtpRecipeTest, ASavedModelHasItWhenAsked) {
  const TemporaryFolder with, without;
  const std::string paths[] = {saved_model(recipe_with_part(), with.path()),
                               saved_model(without_part(recipe_with_part()), without.path())};
  for (const std::string& path : paths) {
    EXPECT_EQ(read(fmt::format("path = \"{}\"\n", path)).model.mtp_layers, 0);
    const Recipe r = read(fmt::format("path = \"{}\"\nmtp_layers = 1\nmtp_loss = 0.2\n", path));
    EXPECT_EQ(r.model.mtp_layers, 1);
    EXPECT_EQ(r.model.mtp_loss, 0.2);
  }
  EXPECT_EQ(model_config_of(paths[0], WithMtp::yes).mtp_layers, 1);
  EXPECT_EQ(model_config_of(paths[1], WithMtp::yes).mtp_layers, 0);
}

TrainedRun started_from(const Recipe& recipe, const ModelSource* start) {
  TrainedRun run;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    if (start) start_from(*start, recipe, trainer);
    TrainedRun mine;
    add_tensors(recipe, trainer, mine);
    if (world.rank() == 0) run = std::move(mine);
  });
  return run;
}

std::vector<float> values_of(const ModelSource& source, const std::string& param, size_t count) {
  std::vector<float> values(count);
  source.read(param, 0, values);
  return values;
}

// Also where the embedding that the part reads is on another rank.
TEST(MtpStartTest, GoesOnWithASavedPartOrANewOne) {
  const TemporaryFolder with, without;
  const auto has_part =
      open_model(saved_model(recipe_with_part(), with.path()), Checkpoint::Check::all_bytes, WithMtp::yes);
  const auto has_none = open_model(saved_model(without_part(recipe_with_part()), without.path()),
                                   Checkpoint::Check::all_bytes, WithMtp::yes);
  const TrainedRun fresh = started_from(recipe_with_part(), nullptr);
  for (const Recipe& recipe : {recipe_with_part(), recipe_with_part({.pp = 2, .shard = 2}, Zero::parameters, 2)})
    for (const ModelSource* source : {has_part.get(), has_none.get()}) {
      const TrainedRun run = started_from(recipe, source);
      ASSERT_EQ(run.names, fresh.names);
      int num_of_part = 0;
      for (size_t i = 0; i < run.names.size(); ++i) {
        const bool is_new = run.names[i].starts_with("layers.2.") && source == has_none.get();
        num_of_part += run.names[i].starts_with("layers.2.");
        const std::vector<float>& new_one = fresh.weights[i];
        EXPECT_EQ(run.weights[i], is_new ? new_one : values_of(*source, run.names[i], new_one.size()))
            << run.names[i];
      }
      EXPECT_EQ(num_of_part, 13);
    }
}

TEST(MtpStartTest, IsLeftOutWhereNobodyAsks) {
  const TemporaryFolder folder;
  const std::string path = saved_model(recipe_with_part(), folder.path());
  const auto source = open_model(path);
  EXPECT_EQ(source->config().mtp_layers, 0);
  for (const ParamNames& names : source->names()) EXPECT_FALSE(names.param.starts_with("layers.2.")) << names.param;
}

TEST(MtpCheckpointTest, GoesOnOnAnotherMesh) {
  const TemporaryFolder one, many;
  const Recipe on_one = recipe_with_part(), on_four = recipe_with_part({.pp = 2, .shard = 2}, Zero::parameters, 2);
  const Recipe on_others = recipe_with_part({.cp = 2, .tp = 2});
  const auto begun = go_on_in(one.path(), on_one, 4), done = go_on_in(one.path(), on_one, 4);
  const auto first = go_on_in(many.path(), on_four, 4), second = go_on_in(many.path(), on_others, 4);
  const auto expect_near = [](const auto& got, const auto& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].loss, want[i].loss, 1e-4);
      EXPECT_NEAR(got[i].mtp_loss.value(), want[i].mtp_loss.value(), 1e-4);
    }
  };
  expect_near(first, begun), expect_near(second, done);
}

// Whichever side has it.
TEST(MtpCheckpointTest, IsRefusedByName) {
  const Recipe with = recipe_with_part(), without = without_part(with);
  for (const auto& [saved, resumed] : {std::pair(with, without), std::pair(without, with)}) {
    const TemporaryFolder folder;
    go_on_in(folder.path(), saved, 1);
    try {
      go_on_in(folder.path(), resumed, 1);
      ADD_FAILURE() << "it went on";
    } catch (const Error& e) {
      EXPECT_NE(std::string_view(e.what()).find(" model.mtp_layers = "), std::string_view::npos) << e.what();
    }
  }
}

TEST(MtpTrainingTest, LearnsWhatComesFurtherOn) {
  // Rows that count up from anywhere: every token says the two that follow.
  class Counting final : public BatchSource {
   public:
    void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override {
      batch.reset(rows, 16);
      for (int32_t t = 0; t < rows * 16; ++t) {
        const int32_t row = first_row + t / 16, begin = int32_t(step) * 7 + row * 11;
        batch.ids[size_t(t)] = (begin + t % 16) % 61, batch.targets[size_t(t)] = (begin + t % 16 + 1) % 61;
        batch.positions[size_t(t)] = t % 16;
        if (t % 16 == 0) batch.sequence_starts.push_back(t);
      }
      batch.sequence_starts.push_back(rows * 16);
      batch.num_targets = int64_t(rows) * 16;
    }
    int64_t num_targets(int64_t) const override { return int64_t(8) * 16; }
  };
  Recipe recipe = recipe_with_part();
  recipe.optimizer.schedule.lr = 1e-2, recipe.train.steps = recipe.optimizer.schedule.steps = 80;
  recipe.model.mtp_loss = 0.3;
  run_ranks(1, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Counting batches;
    Trainer trainer(rank.context, world, recipe, batches);
    const StepResult first = trainer.step();
    // Fifteen of sixteen tokens have one further on.
    EXPECT_NEAR(first.loss, std::log(61), 0.1);
    EXPECT_NEAR(*first.mtp_loss, std::log(61) * 15 / 16, 0.1);
    StepResult last = first;
    for (int i = 1; i < 80; ++i) last = trainer.step();
    EXPECT_LT(last.loss, 0.1);
    EXPECT_LT(*last.mtp_loss, 0.1);
  });
}

TEST(MtpTrainingTest, IsCounted) {
  const Recipe with = recipe_with_part(), without = without_part(with);
  const ModelConfig& m = with.model;
  EXPECT_EQ(count_params(with).all, m.num_params());
  EXPECT_GT(estimate_memory(with, 0).state_bytes,
            estimate_memory(without, 0).state_bytes + 16 * (m.num_params() - without.model.num_params()));
  // Of a training token, six for each weight of the part and of the head, and attention.
  const int64_t part = m.num_params() - without.model.num_params();
  EXPECT_NEAR(m.flops_per_token(1) - without.model.flops_per_token(1), double(6 * (part + m.hidden * m.vocab)),
              double(6 * 6 * m.hidden) + double(6 * 4 * m.hidden));
}

// Fewer layers where the part is.
TEST(MtpTrainingTest, WeighsInAPipeline) {
  ModelConfig c = preset("llama-1b");
  complete(c);
  const auto layers_of_last = [&] {
    return decoder_parts(c, 1024, "", {.kind = ScheduleKind::one_f_one_b, .num_ranks = 4}).back().num_layers;
  };
  const int64_t without = layers_of_last();
  c.mtp_layers = 1;
  EXPECT_LT(layers_of_last(), without);
}

}  // namespace
}  // namespace weft
