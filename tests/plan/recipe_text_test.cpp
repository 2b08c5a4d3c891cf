// The recipes that plans become: what `weft train` reads, with all that the user wrote.
#include "weft/plan/recipe_text.h"

#include "base/temporary_folder.h"
#include "weft/plan/search.h"

namespace weft::plan {
namespace {

Recipe read_text(const std::string& text) {
  Toml toml = Toml::parse(text, "planned.toml");
  return read_recipe(toml);
}

void expect_planned(const Recipe& read, const Recipe& planned) {
  EXPECT_EQ(read.mesh.shape, planned.mesh.shape);
  EXPECT_EQ(read.mesh.zero, planned.mesh.zero);
  EXPECT_EQ(read.mesh.schedule, planned.mesh.schedule);
  EXPECT_EQ(read.mesh.virtual_stages, planned.mesh.virtual_stages);
  EXPECT_EQ(read.mesh.layers_per_stage, planned.mesh.layers_per_stage);
  EXPECT_EQ(read.mesh.sequence_parallel, planned.mesh.sequence_parallel);
  EXPECT_EQ(read.mesh.reshard_after_forward, planned.mesh.reshard_after_forward);
  EXPECT_EQ(read.mesh.cp_mode, planned.mesh.cp_mode);
  EXPECT_EQ(read.mesh.offload.optimizer, planned.mesh.offload.optimizer);
  EXPECT_EQ(read.mesh.offload.activations, planned.mesh.offload.activations);
  EXPECT_EQ(read.train.seq_len, planned.train.seq_len);
  EXPECT_EQ(read.train.global_batch, planned.train.global_batch);
  EXPECT_EQ(read.train.accumulation, planned.train.accumulation);
  EXPECT_EQ(read.train.precision, planned.train.precision);
  EXPECT_EQ(read.train.recompute.what, planned.train.recompute.what);
  EXPECT_EQ(read.train.recompute.every, planned.train.recompute.every);
}

TEST(RecipeTextTest, SearchedRecipesAreReadBack) {
  ModelConfig model = family_defaults("llama");
  model.layers = 8, model.hidden = 4096, model.heads = 32, model.kv_heads = 8, model.ffn = 14336;
  model.vocab = 128256, model.context = 8192;
  complete(model);
  const SearchResult found = search(
      {.model = model, .seq_len = 4096, .global_batch = 8, .cluster = parse_cluster("4xa100-80"), .num_full = 3});
  ASSERT_FALSE(found.ranked.empty());
  for (Candidate c : found.ranked) {
    c.recipe.data.train = "a \"text\" # 1";
    Recipe read = read_text(recipe_text(c.recipe, "Planned."));
    set_vocab(read, read.model.vocab);
    EXPECT_EQ(read.model, c.recipe.model);
    EXPECT_EQ(read.data.train, c.recipe.data.train);
    EXPECT_EQ(read.train.steps, c.recipe.train.steps);
    expect_planned(read, c.recipe);
  }
}

// A saved model is named, and its shape left to it.
TEST(RecipeTextTest, AFolderIsNamed) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32,
    "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 256, "max_position_embeddings": 64})";
  Recipe planned;
  planned.model_path = folder.path();
  planned.data.train = "text.txt";
  planned.train = {.steps = 10, .seq_len = 64, .global_batch = 8, .micro_batch = 8, .accumulation = 1};
  const Recipe read = read_text(recipe_text(planned, "Planned."));
  EXPECT_EQ(read.model_path, folder.path());
  EXPECT_EQ(read.model.hidden, 32);
  expect_planned(read, planned);
  planned.train.seq_len = 128;  // beyond the model's context
  EXPECT_THROW(recipe_text(planned, "Planned."), UsageError);
}

constexpr const char* kModel = R"([model]
family = "llama"
layers = 8
hidden = 64
heads = 8
kv_heads = 4
ffn = 128
vocab = 512
context = 128
)";
constexpr const char* kRest = R"(
[data]
train = "chats.jsonl"
format = "chat"
[lora]
rank = 4
targets = ["q", "k", "v"]
[optimizer]
name = "lion"
lr = 3e-5
schedule = "wsd"
decay_steps = 50
[train]
steps = 321
seq_len = 64
global_batch = 8
accumulation = 2
seed = 7
[mesh]
dp = 4
hsdp = 2
zero = 3
layers_per_stage = "8"
offload_optimizer = "host"
reshard_after_forward = false
timeout_s = 77
[checkpoint]
every = 9
[log]
dir = "runs/mine"
)";

struct Planned {
  std::string name;
  std::function<void(Recipe&)> change;
};
std::vector<Planned> planned_layouts() {
  return {{"tensor", [](Recipe& r) { r.mesh.shape.tp = 4, r.mesh.sequence_parallel = true; }},
          {"pipeline",
           [](Recipe& r) {
             r.mesh.shape.pp = 2, r.mesh.schedule = ScheduleKind::interleaved, r.mesh.virtual_stages = 2;
             r.train.micro_batch = 1, r.train.accumulation = 8;
           }},
          {"context", [](Recipe& r) { r.mesh.shape.cp = 2, r.mesh.cp_mode = ContextMode::ulysses; }},
          {"hybrid",
           [](Recipe& r) {
             r.mesh.shape.replicate = 2, r.mesh.shape.shard = 4, r.mesh.zero = Zero::parameters;
             r.train.micro_batch = 1, r.train.accumulation = 1;
           }},
          {"longer_rows", [](Recipe& r) { r.train.seq_len = 256; }},
          {"recomputed",
           [](Recipe& r) {
             r.train.recompute = {RecomputePolicy::What::block, 3};
           }},
          {"offloaded", [](Recipe& r) {
             r.train.recompute = {RecomputePolicy::What::block};
             r.mesh.offload.optimizer = r.mesh.offload.activations = OffloadTo::disk;
           }}};
}

class RecipeTextOverTest : public testing::TestWithParam<Planned> {};
INSTANTIATE_TEST_SUITE_P(Layouts, RecipeTextOverTest, testing::ValuesIn(planned_layouts()),
                         [](const auto& test) { return test.param.name; });

TEST_P(RecipeTextOverTest, WhatIsNotPlannedSurvives) {
  const Toml own = Toml::parse(std::string(kModel) + kRest, "mine.toml");
  Toml toml = own;
  const Recipe mine = read_recipe(toml);
  Recipe planned;
  planned.train = {.steps = 1000, .seq_len = 64, .global_batch = 8, .micro_batch = 8, .accumulation = 1};
  planned.train.precision = Precision::bf16;
  GetParam().change(planned);
  const Recipe read = read_text(recipe_text_over(own, planned));
  expect_planned(read, planned);
  ModelConfig model = mine.model;
  model.context = std::max(model.context, planned.train.seq_len);
  EXPECT_EQ(read.model, model);  // with its adapters
  EXPECT_EQ(read.optimizer.kind, OptimizerKind::lion);
  EXPECT_EQ(read.optimizer.schedule.lr, 3e-5);
  EXPECT_EQ(read.optimizer.schedule.decay_steps, 50);
  EXPECT_EQ(read.data.format, "chat");
  EXPECT_EQ(read.train.steps, 321);
  EXPECT_EQ(read.train.seed, 7u);
  EXPECT_EQ(read.mesh.timeout_s, 77);
  EXPECT_EQ(read.checkpoint.every, 9);
  EXPECT_EQ(read.log.dir, "runs/mine");
}

// A key that stays may contradict the plan: then no recipe is better than one that is refused later.
TEST(RecipeTextTest, AContradictionIsSaid) {
  Toml own = Toml::parse(std::string(kModel) + R"([data]
train = "pairs.jsonl"
[train]
seq_len = 64
global_batch = 8
[preference]
method = "dpo"
)",
                         "mine.toml");
  Recipe planned;
  planned.train = {.steps = 1, .seq_len = 64, .global_batch = 8, .micro_batch = 8, .accumulation = 1};
  EXPECT_NO_THROW(recipe_text_over(own, planned));
  planned.mesh.shape.shard = planned.mesh.shape.ep = 2;  // of a model without experts
  EXPECT_THROW(recipe_text_over(own, planned), UsageError);
}

}  // namespace
}  // namespace weft::plan
