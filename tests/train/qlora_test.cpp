// QLoRA: frozen weights as NF4 take half a byte each, mean what they decode to, and survive a restart as the same
// bits.
#include "base/temporary_folder.h"
#include "train/mesh_cases.h"
#include "weft/base/toml.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/memory_estimate.h"
#include "weft/train/start_from.h"

namespace weft {
namespace {

const LoraConfig kPlain{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets};

Recipe wide_recipe(const LoraConfig& lora) {
  Recipe r = small_recipe("llama", Precision::bf16, 1);
  r.model.hidden = 256, r.model.head_dim = 64, r.model.ffn = 512;
  r.model.lora = lora;
  return r;
}

Nf4Held held_on_all_ranks(const Recipe& r) {
  Nf4Held all;
  for (const MemoryEstimate& rank : estimate_memory(r)) all.weights += rank.nf4.weights, all.bytes += rank.nf4.bytes;
  return all;
}

TEST(QloraTest, BaseTakesAtMostSixTenthsOfAByte) {
  for (const MeshShape shape : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.shard = 2}, MeshShape{.pp = 2}}) {
    Recipe r = wide_recipe(kNf4Adapters);
    r.mesh.shape = shape;
    r.mesh.zero = shape.shard > 1 ? Zero::parameters : Zero::none;
    r.train.micro_batch = r.train.global_batch / r.mesh.shape.dp();
    const Nf4Held all = held_on_all_ranks(r);
    EXPECT_EQ(all.weights, 2 * (256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512));
    EXPECT_LE(double(all.bytes), 0.6 * double(all.weights));
  }
}

TEST(QloraTest, ExpertsTakeAsLittle) {
  for (const MeshShape shape : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.shard = 2, .ep = 2}}) {
    Recipe r = wide_recipe(kNf4Adapters);
    r.model.experts = 4, r.model.expert_ffn = 128;
    complete(r.model);
    r.mesh.shape = shape;
    r.train.micro_batch = r.train.global_batch / r.mesh.shape.dp();
    const Nf4Held all = held_on_all_ranks(r);
    const int64_t attention = 256 * 256 * 2 + 256 * 128 * 2, experts = 4 * 3 * 256 * 128;
    EXPECT_EQ(all.weights, 2 * (attention * shape.shard + experts));  // ranks along ep have attention each
    EXPECT_LE(double(all.bytes), 0.6 * double(all.weights));
  }
}

// What a rank holds for training falls by all that these weights took: values and packed copies.
TEST(QloraTest, NothingElseOfTheBaseIsHeld) {
  const MemoryEstimate nf4 = estimate_memory(wide_recipe(kNf4Adapters), 0),
                       plain = estimate_memory(wide_recipe(kPlain), 0);
  EXPECT_GE(plain.state_bytes - nf4.state_bytes, int64_t((2 - 0.6) * double(nf4.nf4.weights)));
}

TEST(QloraTest, RecipesAskForIt) {
  const std::string rest =
      "[data]\ntrain = \"x\"\n[train]\nseq_len = 8\nglobal_batch = 2\n[model]\nlayers = 1\nhidden = 8\nheads = 2\n";
  const auto base_of = [&](const std::string& lora) {
    Toml toml = Toml::parse(rest + lora, "r.toml");
    return read_recipe(toml).model.lora.base;
  };
  EXPECT_EQ(base_of("[lora]\nquantize = \"nf4\"\n"), BaseFormat::nf4);
  EXPECT_EQ(base_of("[lora]\n"), BaseFormat::plain);
  EXPECT_THROW(base_of("[lora]\nquantize = \"int3\"\n"), UsageError);
}

struct Trained {
  std::vector<double> losses;
  TrainedRun end;
};

// Four steps from the newest checkpoint in `folder`, or from `start`, or from initial values; saved where there is a
// folder.
Trained train(Recipe recipe, const std::string& folder, const ModelSource* start = nullptr) {
  recipe.optimizer.adamw.eps = 1e-4;  // rounding errors stay rounding errors
  Trained result;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    const ByteTokenizer tokenizer;
    Trainer trainer(rank.context, world, recipe, batches);
    if (start) start_from(*start, recipe, trainer);
    SavedRun saved(trainer, recipe, tokenizer);
    std::optional<CheckpointStore> store;
    if (!folder.empty()) {
      store.emplace(folder);
      if (const FoundCheckpoint found = store->newest_valid(); found.checkpoint) saved.load(*found.checkpoint);
    }
    Trained mine;
    for (int i = 0; i < 4; ++i) mine.losses.push_back(trainer.step().loss);
    add_tensors(recipe, trainer, mine.end);
    if (store) save_now(saved, trainer, *store);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

TEST(QloraTest, ResumesWithTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const TemporaryFolder folder;
    Recipe recipe = recipe_of({.precision = precision, .lora = kNf4Adapters});
    const Trained first = train(recipe, folder.path()), second = train(recipe, folder.path());
    // The same eight steps unbroken.
    const TemporaryFolder other;
    std::vector<double> unbroken;
    run_ranks(1, [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      Recipe again = recipe;
      again.optimizer.adamw.eps = 1e-4;
      const SyntheticBatches batches = batches_of(again);
      Trainer trainer(rank.context, world, again, batches);
      for (int i = 0; i < 8; ++i) unbroken.push_back(trainer.step().loss);
    });
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(first.losses[i], unbroken[i]);
      EXPECT_EQ(second.losses[i], unbroken[i + 4]);
    }
  }
}

// The saved model is what the quantised one decodes to: as the base of plain adapters it gives the same losses.
TEST(QloraTest, EqualsTrainingBesideTheDecodedWeights) {
  const TemporaryFolder folder;
  Recipe nf4 = recipe_of({.lora = kNf4Adapters});
  train(nf4, folder.path());
  const std::unique_ptr<ModelSource> source = open_model(folder.path());
  Recipe plain = nf4;
  plain.model.lora.base = BaseFormat::plain;
  for (const MeshShape shape : {MeshShape{}, MeshShape{.shard = 2, .tp = 2}}) {
    Recipe r = nf4;
    r.mesh.shape = shape;
    r.train.micro_batch = r.train.global_batch / r.mesh.shape.dp();
    const Trained one = train(plain, "", source.get());
    // Decoded values are not quite fixed points of quantisation with new scales.
    const Trained quantised = train(r, "", source.get());
    for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(quantised.losses[i], one.losses[i], 2e-3);
  }
}

TEST(QloraTest, ResumesOnAnotherMesh) {
  const TemporaryFolder folder;
  const Recipe one = recipe_of({.lora = kNf4Adapters});
  const Recipe other = recipe_of({.shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .lora = kNf4Adapters});
  train(one, folder.path());
  const TemporaryFolder copy;
  train(one, copy.path());
  const std::vector<double> there = train(other, folder.path()).losses, here = train(one, copy.path()).losses;
  for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], 1e-5 * here[i]);
}

}  // namespace
}  // namespace weft
