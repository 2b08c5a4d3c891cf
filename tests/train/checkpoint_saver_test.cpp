// Saving by all ranks at once while training goes on.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "train/training_setup.h"
#include "weft/comm/single/single.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/tensor_exchange.h"

namespace weft {
namespace {

// What a rank needs to train and to save.
struct SavingRank {
  TestRank rank{cpu_kernels()};
  SyntheticBatches batches;
  ByteTokenizer tokenizer;
  Trainer trainer;
  SavedRun saved;
  CheckpointStore store;

  SavingRank(Communicator& world, const Recipe& recipe, const std::string& folder,
             FileSystem& fs = FileSystem::real())
      : batches(batches_of(recipe)),
        trainer(rank.context, world, recipe, batches),
        saved(trainer, recipe, tokenizer),
        store(folder, {}, fs) {}
};

TEST(SpreadTest, GivesEveryRankAboutAsManyBytes) {
  const std::vector<uint64_t> bytes{100, 10, 10, 10, 10, 60, 60, 60};
  EXPECT_EQ(spread(bytes, 1), std::vector<int>(8, 0));
  EXPECT_EQ(spread(bytes, 2), (std::vector<int>{0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(spread({}, 4), std::vector<int>{});
  const std::vector<uint64_t> one{7};
  EXPECT_EQ(spread(one, 3), std::vector<int>{1});
}

// Ranks hold every third element of tensors, each rank others.
TEST(TensorExchangeTest, PutsScatteredRunsTogether) {
  constexpr int kRanks = 3, kTensors = 5;
  run_ranks(kRanks, [](Communicator& world) {
    Allocator memory;
    std::vector<Tensor> whole(kTensors);
    TensorExchange exchange(world);
    for (int t = 0; t < kTensors; ++t) {
      const int64_t size = 10 + t;
      if (t % kRanks == world.rank()) whole[size_t(t)] = memory.zeros(DType::f32, {size});
      exchange.add(t % kRanks, whole[size_t(t)], size, [&](auto&& take) {
        const Tensor here = memory.empty(DType::f32, {1});
        for (int64_t i = 0; i < size; ++i) {
          here.data<float>()[0] = float(100 * t + i);
          take(here, i, i % kRanks == world.rank());
        }
      });
    }
    exchange.finish();
    for (int t = world.rank(); t < kTensors; t += kRanks)
      for (int64_t i = 0; i < 10 + t; ++i) EXPECT_EQ(whole[size_t(t)].data<float>()[i], float(100 * t + i));
  });
}

// More than a rank sends at a time.
TEST(TensorExchangeTest, LongRunsTravelInRounds) {
  constexpr int64_t kSize = (int64_t(20) << 20) / int64_t(sizeof(float));
  run_ranks(2, [](Communicator& world) {
    Allocator memory;
    const Tensor here = memory.empty(DType::f32, {world.rank() == 0 ? kSize : 1});
    for (int64_t i = 0; i < here.numel(); ++i) here.data<float>()[i] = float(i % 4099);
    const Tensor whole = world.rank() == 1 ? memory.zeros(DType::f32, {kSize}) : Tensor{};
    TensorExchange exchange(world);
    exchange.add(1, whole, kSize, [&](auto&& take) { take(here, 0, world.rank() == 0); });
    exchange.finish();
    if (world.rank() == 0) return;
    int64_t wrong = 0;
    for (int64_t i = 0; i < kSize; ++i) wrong += whole.data<float>()[i] != float(i % 4099);
    EXPECT_EQ(wrong, 0);
  });
}

TEST(TensorExchangeTest, NoticesElementsThatNobodyGave) {
  const auto world = make_single_communicator();
  Allocator memory;
  const Tensor whole = memory.zeros(DType::f32, {4}), here = memory.zeros(DType::f32, {3});
  TensorExchange exchange(*world);
  exchange.add(0, whole, 4, [&](auto&& take) { take(here, 0, true); });
  EXPECT_THROW(exchange.finish(), Error);
}

Recipe recipe_of_four() {
  Recipe r = small_recipe("llama", Precision::fp32, 2);
  r.mesh.shape = {.shard = 2, .tp = 2}, r.mesh.zero = Zero::parameters;
  return r;
}

TEST(CheckpointSaverTest, EveryRankWritesItsPart) {
  const TemporaryFolder folder;
  const Recipe recipe = recipe_of_four();
  run_ranks(4, [&](Communicator& world) {
    SavingRank own(world, recipe, folder.path());
    auto& [rank, batches, tokenizer, trainer, saved, store] = own;
    save_now(saved, trainer, store);
    const Checkpoint checkpoint = std::move(*store.newest_valid().checkpoint);
    uint64_t all = 0;
    for (int r = 0; r < 4; ++r) {
      const ManifestFile* const mine = checkpoint.manifest().find(fmt::format("model-{:05}.safetensors", r));
      ASSERT_NE(mine, nullptr) << "rank " << r;
      all += mine->bytes();
    }
    EXPECT_GT(all, uint64_t(4 * recipe.model.num_params()));
    EXPECT_EQ(checkpoint.names(kModelGroup).size() * 2, checkpoint.names(kOptimizerGroup).size());
  });
}

// A file system whose writes wait until it is opened.
class GatedFileSystem final : public PassingFileSystem {
 public:
  int64_t write(int fd, Bytes bytes) override {
    std::unique_lock lock(mutex_);
    is_open_.wait(lock, [&] { return opened_; });
    return PassingFileSystem::write(fd, bytes);
  }
  void open_gate() {
    const std::lock_guard lock(mutex_);
    opened_ = true;
    is_open_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_open_;
  bool opened_ = false;
};

TEST(CheckpointSaverTest, TrainingGoesOnWhileFilesAreWritten) {
  const TemporaryFolder folder;
  const Recipe recipe = recipe_of_four();
  GatedFileSystem gate;
  std::vector<double> losses, again;
  run_ranks(4, [&](Communicator& world) {
    SavingRank own(world, recipe, folder.path(), gate);
    auto& [rank, batches, tokenizer, trainer, saved, store] = own;
    CheckpointSaver saver(world, store);
    trainer.step();
    saver.start(saved.take(0));
    for (int i = 0; i < 3; ++i) {
      const double loss = trainer.step().loss;
      if (world.rank() == 0) losses.push_back(loss);
    }
    EXPECT_TRUE(saver.is_busy());
    EXPECT_FALSE(saver.is_written());
    EXPECT_FALSE(store.newest_valid().checkpoint);
    world.barrier();
    if (world.rank() == 0) gate.open_gate();
    saver.finish();
    EXPECT_FALSE(saver.is_busy());
    // It holds the step at which it began, not what became of the weights meanwhile.
    EXPECT_EQ(saved.load(*store.newest_valid().checkpoint).step, 1);
    for (int i = 0; i < 3; ++i) {
      const double loss = trainer.step().loss;
      if (world.rank() == 0) again.push_back(loss);
    }
  });
  EXPECT_EQ(again, losses);
}

// The watchdog's time is much shorter than a disk takes to write.
TEST(CheckpointSaverTest, ASlowDiskIsNoRankThatStandsStill) {
  const TemporaryFolder folder;
  const Recipe recipe = recipe_of_four();
  std::vector<GatedFileSystem> disks(4);
  for (int r = 0; r < 3; ++r) disks[size_t(r)].open_gate();
  run_ranks(4,
            [&](Communicator& world) {
              SavingRank own(world, recipe, folder.path(), disks[size_t(world.rank())]);
              auto& [rank, batches, tokenizer, trainer, saved, store] = own;
              CheckpointSaver saver(world, store);
              saver.start(saved.take(0));
              std::jthread opener;
              if (world.rank() == 3)
                opener = std::jthread([&] {
                  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
                  disks[3].open_gate();
                });
              saver.finish();
            },
            {.timeout = std::chrono::milliseconds(400)});
  EXPECT_TRUE(CheckpointStore(folder.path()).newest_valid().checkpoint);
}

TEST(CheckpointSaverTest, ARankThatStandsStillIsMissed) {
  const TemporaryFolder folder;
  const Recipe recipe = recipe_of_four();
  std::atomic<bool> is_missed{false};
  std::string message;
  try {
    run_ranks(4,
              [&](Communicator& world) {
                SavingRank own(world, recipe, folder.path());
                auto& [rank, batches, tokenizer, trainer, saved, store] = own;
                CheckpointSaver saver(world, store);
                saver.start(saved.take(0));
                if (world.rank() == 2)
                  for (int i = 0; i < 500 && !is_missed; ++i)
                    std::this_thread::sleep_for(std::chrono::milliseconds(10));
                try {
                  saver.finish();
                } catch (...) {
                  is_missed = true;
                  throw;
                }
              },
              {.timeout = std::chrono::milliseconds(500)});
  } catch (const Error& e) {
    message = e.what();
  }
  EXPECT_NE(message.find("rank 2 did not come within 0.5 s"), std::string::npos) << message;
  EXPECT_FALSE(CheckpointStore(folder.path()).newest_valid().checkpoint);
}

class FullDisk final : public PassingFileSystem {
 public:
  std::atomic<bool> is_full = false;
  int allocate(int fd, uint64_t bytes) override { return is_full ? -ENOSPC : PassingFileSystem::allocate(fd, bytes); }
};

TEST(CheckpointSaverTest, AFailureOfAnyRankEndsTheSaveAndKeepsTheLastCheckpoint) {
  const TemporaryFolder folder;
  const Recipe recipe = recipe_of_four();
  std::vector<FullDisk> disks(4);
  std::string message;
  try {
    run_ranks(4, [&](Communicator& world) {
      SavingRank own(world, recipe, folder.path(), disks[size_t(world.rank())]);
      auto& [rank, batches, tokenizer, trainer, saved, store] = own;
      save_now(saved, trainer, store);
      trainer.step();
      disks[2].is_full = true;
      save_now(saved, trainer, store);
    });
  } catch (const Error& e) {
    message = e.what();
  }
  EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
  EXPECT_NE(message.find("model-00002.safetensors"), std::string::npos) << message;
  const FoundCheckpoint found = CheckpointStore(folder.path()).newest_valid();
  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->step(), 0);
}

}  // namespace
}  // namespace weft
