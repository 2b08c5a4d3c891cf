// Adapters: what is frozen keeps its bits and takes no memory beyond its values; training starts from saved models.
#include "base/temporary_folder.h"
#include "train/mesh_cases.h"
#include "weft/base/toml.h"
#include "weft/models/model_json.h"
#include "weft/train/memory_estimate.h"
#include "weft/train/model_parts.h"
#include "weft/train/start_from.h"

namespace weft {
namespace {

const LoraConfig kEverywhere{.rank = 4, .alpha = 32, .dropout = 0, .targets = bit_of(LoraTarget::router) - 1};

// Weights of every parameter on rank 0, at the start of a run and some steps later.
struct BeforeAndAfter {
  TrainedRun before, after;
};
BeforeAndAfter train_and_compare(const Recipe& recipe, const ModelSource* start = nullptr) {
  const SyntheticBatches batches = batches_of(recipe);
  BeforeAndAfter runs;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    Trainer trainer(rank.context, world, recipe, batches);
    if (start) start_from(*start, recipe, trainer);
    BeforeAndAfter mine;
    add_tensors(recipe, trainer, mine.before);
    for (int i = 0; i < 3; ++i) trainer.step();
    add_tensors(recipe, trainer, mine.after);
    if (world.rank() == 0) runs = std::move(mine);
  });
  return runs;
}

struct BaseCase {
  const char* name;
  MeshCase mesh;
};
class LoraBaseTest : public testing::TestWithParam<BaseCase> {};
INSTANTIATE_TEST_SUITE_P(
    Meshes, LoraBaseTest,
    testing::Values(
        BaseCase{"one", {.lora = kEverywhere}},
        BaseCase{
            "bf16_dp2_zero3",
            {.shape = {.shard = 2}, .zero = Zero::parameters, .precision = Precision::bf16, .lora = kEverywhere}},
        BaseCase{"pp2_tp2", {.shape = {.pp = 2, .tp = 2}, .accumulation = 2, .lora = kEverywhere}}),
    [](const auto& test) { return test.param.name; });

TEST_P(LoraBaseTest, KeepsItsBits) {
  const BeforeAndAfter runs = train_and_compare(recipe_of(GetParam().mesh));
  int64_t num_adapters = 0;
  for (size_t i = 0; i < runs.before.names.size(); ++i) {
    const std::string& name = runs.before.names[i];
    num_adapters += is_adapter(name);
    EXPECT_EQ(runs.before.weights[i] == runs.after.weights[i], !is_adapter(name)) << name;
  }
  EXPECT_EQ(num_adapters, 4 * 7 * 2);
}

TEST(LoraTest, FrozenWeightsHaveNeitherGradientsNorStates) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Recipe full = small_recipe("llama", precision, 1);
    full.model.hidden = 128, full.model.head_dim = 32, full.model.ffn = 256;
    Recipe adapted = full;
    adapted.model.lora = kEverywhere;
    const ParamCount count = count_params(adapted);
    EXPECT_EQ(count.trained, adapted.model.num_adapter_params());
    EXPECT_EQ(count.all - count.trained, full.model.num_params());
    const int64_t saved = estimate_memory(full, 0).state_bytes - estimate_memory(adapted, 0).state_bytes;
    // Each frozen weight has no gradient, no moments, and beside bf16 no lower half of a master; each adapter has
    // all, and packed forms.
    const int64_t of_frozen = precision == Precision::fp32 ? 12 : 14;
    const int64_t least = of_frozen * full.model.num_params() - 64 * count.trained;
    EXPECT_GT(least, 0);
    EXPECT_GE(saved, least);
  }
}

TEST(LoraTest, CountsWhatAdaptersCost) {
  ModelConfig c = preset("gpt2-124m");
  complete(c);
  const double full = c.flops_per_token(1024);
  c.lora = {.rank = 8, .alpha = 16, .dropout = 0, .targets = lora_targets({"q", "v"})};
  complete(c);
  EXPECT_EQ(c.num_adapter_params(), 12 * 2 * 8 * (768 + 768));
  EXPECT_LT(c.flops_per_token(1024), 0.75 * full);
  EXPECT_GT(c.flops_per_token(1024), 0.65 * full);
}

TEST(LoraTest, CountsAdaptersOfExperts) {
  Recipe recipe = small_recipe("llama", Precision::fp32, 1);
  ModelConfig& m = recipe.model;
  m.layers = 3, m.first_dense_layers = 1, m.experts = 6, m.experts_per_token = 2, m.expert_ffn = 24;
  m.shared_experts = 2, m.router = RouterGate::sigmoid;
  complete(m);
  const int64_t all = count_params(recipe).all;
  m.lora = kEverywhere;
  complete(m);
  const ParamCount count = count_params(recipe);
  EXPECT_EQ(count.trained, m.num_adapter_params());
  EXPECT_EQ(count.all - count.trained, all);
  // A token passes through two of the six, so that more experts of the same size cost it the router's rows only.
  ModelConfig more = m;
  more.experts = 12;
  complete(more);
  const double router = 2.0 * 2 * 6 * double(m.hidden) * 2;  // forward and what reaches the inputs, two layers
  EXPECT_NEAR(more.flops_per_token(64) - m.flops_per_token(64), router, 1e-6 * router);
}

TEST(LoraTest, AdaptersOfExpertsHaveNoDropoutAndNoLengths) {
  ModelConfig m = small_recipe("llama", Precision::fp32, 1).model;
  m.experts = 4, m.experts_per_token = 2;
  for (LoraConfig wrong : {LoraConfig{.rank = 4, .dropout = 0.1f}, LoraConfig{.rank = 4, .is_dora = true}}) {
    wrong.targets = lora_targets({"q", "up"});
    m.lora = wrong;
    EXPECT_THROW(complete(m), UsageError);
    m.lora.targets = lora_targets({"q"});
    EXPECT_NO_THROW(complete(m));
  }
}

struct StartCase {
  const char* name;
  MeshShape mesh;
  Zero zero = Zero::none;
  int64_t rank = 0;  // of new adapters
};
class StartFromTest : public testing::TestWithParam<StartCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, StartFromTest,
                         testing::Values(StartCase{"one", {}}, StartCase{"tp2", {.tp = 2}},
                                         StartCase{"pp2_zero3", {.pp = 2, .shard = 2}, Zero::parameters},
                                         StartCase{"adapters", {}, Zero::none, 4},
                                         StartCase{"adapters_tp2_zero3", {.shard = 2, .tp = 2}, Zero::parameters, 4}),
                         [](const auto& test) { return test.param.name; });

TEST_P(StartFromTest, EveryRankHasItsPartOfTheSavedModel) {
  const TemporaryFolder folder;
  Recipe recipe = small_recipe("llama", Precision::fp32, 1);
  const std::string path = saved_model(recipe, folder.path());
  const std::unique_ptr<ModelSource> source = open_model(path);
  recipe.mesh.shape = GetParam().mesh, recipe.mesh.zero = GetParam().zero;
  recipe.train.micro_batch = recipe.train.global_batch / recipe.mesh.shape.dp();
  recipe.train.seed = 77;
  if (GetParam().rank > 0) recipe.model.lora = kEverywhere;
  const TrainedRun started = train_and_compare(recipe, source.get()).before;
  for (size_t i = 0; i < started.names.size(); ++i) {
    if (is_adapter(started.names[i])) continue;
    std::vector<float> want(started.weights[i].size());
    source->read(started.names[i], 0, want);
    EXPECT_EQ(started.weights[i], want) << started.names[i];
  }
}

// A run with adapters goes on from its checkpoint on another mesh, and its checkpoint is a model.
TEST(LoraTest, ResumesOnAnotherMesh) {
  const TemporaryFolder folder;
  const auto train = [&](const MeshCase& mesh) {
    Recipe recipe = recipe_of(mesh);
    recipe.optimizer.adamw.eps = 1e-4;  // rounding errors stay rounding errors
    return losses_of(go_on_in(folder.path(), recipe, 4));
  };
  const MeshCase one{.lora = kEverywhere};
  train(one);
  const std::vector<double> there =
      train({.shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .lora = kEverywhere});
  std::vector<double> unbroken;
  run_ranks(1, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    Recipe recipe = recipe_of(one);
    recipe.optimizer.adamw.eps = 1e-4;
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    for (int i = 0; i < 8; ++i) unbroken.push_back(trainer.step().loss);
  });
  for (size_t i = 0; i < there.size(); ++i) EXPECT_NEAR(there[i], unbroken[i + 4], 1e-5 * unbroken[i + 4]);
  EXPECT_EQ(open_model(folder.path())->config().lora, kEverywhere);
}

Recipe recipe_in(const std::string& text) {
  Toml toml = Toml::parse(text, "r.toml");
  return read_recipe(toml);
}

TEST(LoraTest, RecipesSayWhichAdapters) {
  const std::string rest =
      "[data]\ntrain = \"x\"\n[train]\nseq_len = 8\nglobal_batch = 2\n[model]\nlayers = 1\nhidden = 8\nheads = 2\n";
  const LoraConfig lora = recipe_in(rest + "[lora]\nrank = 4\ntargets = [\"q\", \"o\"]\ndropout = 0.5\n").model.lora;
  EXPECT_EQ(lora.rank, 4);
  EXPECT_EQ(lora.scale(), 2);
  EXPECT_EQ(lora.dropout, 0.5f);
  EXPECT_EQ(lora_target_names(lora), (std::vector<std::string>{"q", "o"}));
  EXPECT_EQ(recipe_in(rest).model.lora.rank, 0);
  for (const char* wrong : {"[lora]\ntargets = [\"query\"]\n", "[lora]\nrank = 0\n", "[lora]\nranks = 4\n"})
    EXPECT_THROW(recipe_in(rest + wrong), UsageError) << wrong;
}

// Adapters of a feed-forward part have one name where the model has one kind of such parts, of experts or not.
TEST(LoraTest, TargetsAreThoseThatTheModelHas) {
  using Names = std::vector<std::string>;
  const auto names = [](const char* family, int64_t shared, const Names& targets, int64_t latent = 0) {
    ModelConfig c = family_defaults(family);
    c.layers = 4, c.hidden = 8, c.heads = 2, c.kv_heads = 2, c.vocab = 9, c.ffn = c.expert_ffn = 6, c.context = 8;
    if (shared >= 0) c.experts = 4, c.experts_per_token = 2, c.shared_experts = shared, c.expert_latent_dim = latent;
    c.lora = {.rank = 2, .targets = lora_targets(targets)};
    complete(c);
    EXPECT_EQ(parse_model_json(to_json(c), "model.json").lora, c.lora);
    Decoder model(c);
    int64_t adapters = 0;
    for (const Param* p : model.params()) adapters += is_adapter(p->name) ? p->shape.numel() : 0;
    EXPECT_EQ(c.num_adapter_params(), adapters) << family << shared;
    return lora_target_names(c.lora);
  };
  EXPECT_EQ(names("llama", -1, {"all-linear"}), (Names{"q", "k", "v", "o", "gate", "up", "down"}));
  EXPECT_EQ(names("llama", -1, {"dense_gate", "q"}), (Names{"q", "gate"}));
  EXPECT_EQ(names("llama", 0, {"expert_up"}), (Names{"up"}));
  EXPECT_EQ(names("llama", 1, {"up"}), (Names{"up"}));
  EXPECT_EQ(names("llama", 1, {"dense_up", "expert_down"}), (Names{"dense_up", "expert_down"}));
  EXPECT_EQ(names("gpt2", -1, {"gate", "up"}), (Names{"up"}));
  EXPECT_EQ(names("qwen3_next", 1, {"all-linear"}, 3), (Names{"all-linear"}));
  EXPECT_EQ(names("llama", 1, {"latent_up", "v", "latent_down"}, 3), (Names{"v", "latent_down", "latent_up"}));
  EXPECT_EQ(names("qwen3_5", -1, {"v", "state_decay", "state_qkv"}), (Names{"v", "state_qkv", "state_decay"}));
  EXPECT_EQ(names("qwen3_next", 1, {"shared_gate", "o"}), (Names{"o", "shared_gate"}));
  EXPECT_THROW(names("llama", -1, {"state_o"}), UsageError);
  EXPECT_EQ(names("llama", 1, {"router", "v"}), (Names{"v", "router"}));
  EXPECT_THROW(names("llama", 1, {"shared_gate"}), UsageError);
  EXPECT_THROW(names("llama", 1, {"latent_up"}), UsageError);
  EXPECT_THROW(names("llama", -1, {"router"}), UsageError);
}

TEST(LoraTest, ASavedModelSaysItsShapeItself) {
  const TemporaryFolder folder;
  Recipe recipe = small_recipe("llama", Precision::fp32, 1);
  recipe.model.lora = kEverywhere;
  const std::string path = saved_model(recipe, folder.path());
  const std::string text =
      fmt::format("[data]\ntrain = \"x\"\n[train]\nseq_len = 8\nglobal_batch = 2\n[model]\npath = \"{}\"\n", path);
  const Recipe read_back = recipe_in(text);
  EXPECT_EQ(read_back.model.hidden, recipe.model.hidden);
  EXPECT_EQ(read_back.model.lora, kEverywhere);
  EXPECT_EQ(read_back.data.tokenizer, kTokenizerOfModel);
  EXPECT_THROW(recipe_in(text + "layers = 3\n"), UsageError);
  EXPECT_THROW(recipe_in(text + "[lora]\nrank = 2\n"), UsageError);
}

}  // namespace
}  // namespace weft
