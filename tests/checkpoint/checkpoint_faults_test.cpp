// Faults: at every failing I/O call, flipped bit, cut file and kill, a valid checkpoint is there and is found.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "checkpoint/sample_checkpoint.h"

namespace weft {
namespace {

class FaultSweepTest : public testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(Faults, FaultSweepTest,
                         testing::Values(Fault::eio, Fault::enospc, Fault::eintr, Fault::short_write,
                                         Fault::eio_for_good, Fault::enospc_for_good),
                         [](const auto& test) { return std::string(name_of(test.param)); });

void check_message(const std::string& message, const std::string& folder, Fault fault) {
  EXPECT_NE(message.find(folder), std::string::npos) << message;
  if (fault == Fault::eio || fault == Fault::eio_for_good) {
    EXPECT_NE(message.find("Input/output error"), std::string::npos) << message;
  } else if (fault == Fault::enospc || fault == Fault::enospc_for_good) {
    EXPECT_NE(message.find("No space left"), std::string::npos) << message;
  }
}

// Saves step 200 over a store that holds step 100, with call `nth` failing. Returns whether the fault fired.
bool save_with_fault(const TemporaryFolder& folder, Fault fault, int64_t nth, int& num_failed) {
  CheckpointStore good(folder.path(), {.keep = 1});
  SampleModel model;
  model.set(100);
  model.save(good);
  FaultyFileSystem fs(fault, nth);
  CheckpointStore bad(folder.path(), {.keep = 1}, fs);
  bool failed = false;
  model.set(200);
  try {
    model.save(bad);
  } catch (const Error& e) {
    failed = true;
    check_message(e.what(), folder.path(), fault);
  }
  num_failed += failed;
  const int64_t step = load_newest(good);
  EXPECT_TRUE(step == 200 || (failed && step == 100)) << "call " << nth << ", found step " << step;
  model.set(300);
  model.save(good);  // what the fault has left is not in the way
  EXPECT_EQ(load_newest(good), 300) << "call " << nth;
  EXPECT_EQ(list_folder(FileSystem::real(), folder.path()), std::vector<std::string>{"step-000300"}) << nth;
  return fs.fired();
}

TEST_P(FaultSweepTest, NoFailingCallLosesACheckpoint) {
  int num_failed = 0;
  int64_t nth = 0;
  for (bool fired = true; fired; ++nth) {
    const TemporaryFolder folder;
    fired = save_with_fault(folder, GetParam(), nth, num_failed);
  }
  EXPECT_GT(nth, 60) << "a save makes more calls than that";
  const bool is_survivable = GetParam() == Fault::eintr || GetParam() == Fault::short_write;
  EXPECT_EQ(num_failed == 0, is_survivable) << num_failed << " of " << nth;
}

// The same while step 100 is saved again: old or new, it must be there.
TEST_P(FaultSweepTest, NoFailingCallLosesAReplacedCheckpoint) {
  for (int64_t nth = 0;; ++nth) {
    const TemporaryFolder folder;
    CheckpointStore good(folder.path());
    SampleModel model;
    model.set(100);
    model.save(good);
    FaultyFileSystem fs(GetParam(), nth);
    CheckpointStore bad(folder.path(), {}, fs);
    try {
      model.save(bad);
    } catch (const Error&) {
    }
    EXPECT_EQ(load_newest(good), 100) << "call " << nth;
    if (!fs.fired()) break;
  }
}

TEST_P(FaultSweepTest, LoadingNamesTheErrorOrFallsBack) {
  const TemporaryFolder folder;
  CheckpointStore good(folder.path());
  SampleModel model;
  for (const int64_t step : {100, 200}) {
    model.set(step);
    model.save(good);
  }
  for (int64_t nth = 0;; ++nth) {
    FaultyFileSystem fs(GetParam(), nth);
    const CheckpointStore bad(folder.path(), {}, fs);
    try {
      const int64_t step = load_newest(bad);
      EXPECT_TRUE(step == 200 || step == 100 || GetParam() == Fault::eio_for_good ||
                  GetParam() == Fault::enospc_for_good)
          << nth << ": " << step;
    } catch (const Error& e) {
      check_message(e.what(), folder.path(), GetParam());
    }
    if (!fs.fired()) break;
  }
}

std::string read_all(const std::string& path) { return read_file(path, 1 << 24); }
void overwrite(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

class DamageTest : public testing::Test {
 protected:
  DamageTest() : store_(folder_.path()) {
    SampleModel model;
    for (const int64_t step : {100, 200}) {
      model.set(step);
      model.save(store_);
    }
    files_ = list_folder(FileSystem::real(), store_.path_of(200));
  }

  // With `content` in place of a file of the newest checkpoint: the damage is seen, named, and 100 is used instead.
  std::string reason_for(const std::string& file, const std::string& content) {
    const std::string path = join_path(store_.path_of(200), file), whole = read_all(path);
    overwrite(path, content);
    const FoundCheckpoint found = store_.newest_valid();
    overwrite(path, whole);
    if (!found.checkpoint || found.checkpoint->step() != 100 || found.rejected.size() != 1) return "not detected";
    const std::string& reason = found.rejected[0].reason;
    EXPECT_EQ(found.rejected[0].path, store_.path_of(200));
    EXPECT_NE(reason.find(file), std::string::npos) << reason;
    return reason;
  }

  TemporaryFolder folder_;
  CheckpointStore store_;
  std::vector<std::string> files_;
};

TEST_F(DamageTest, EveryFlippedBitIsDetectedAndNamed) {
  ASSERT_EQ(files_, (std::vector<std::string>{"manifest.json", "model.safetensors", "optimizer.safetensors",
                                              "recipe.toml", "state.json"}));
  constexpr size_t kStride = 5;
  std::mt19937 random(5);
  int num_flips = 0;
  for (const std::string& file : files_) {
    const std::string whole = read_all(join_path(store_.path_of(200), file));
    for (size_t at = random() % kStride; at < whole.size(); at += kStride) {
      std::string bad = whole;
      bad[at] ^= char(1 << random() % 8);
      const std::string reason = reason_for(file, bad);
      EXPECT_NE(reason, "not detected") << file << " byte " << at;
      ++num_flips;
    }
  }
  EXPECT_GE(num_flips, 1000);
}

TEST_F(DamageTest, DamageIsNamedByTensor) {
  const std::string path = join_path(store_.path_of(200), "optimizer.safetensors");
  const std::string whole = read_all(path);
  for (const char* name : {"m.wte", "v.h.0.attn", "v.ln"}) {
    const size_t header = whole.size() - CheckpointStore::bytes_of(SampleModel().moments);
    const size_t at = header + SafetensorsFile(path).at(name).begin;
    std::string bad = whole;
    bad[at + 3] ^= 1;
    const std::string reason = reason_for("optimizer.safetensors", bad);
    EXPECT_NE(reason.find(fmt::format("optimizer.safetensors: tensor '{}' is damaged (bytes {} to ", name, at)),
              std::string::npos)
        << reason;
  }
}

TEST_F(DamageTest, EveryTruncationIsDetected) {
  for (const std::string& file : files_) {
    const std::string whole = read_all(join_path(store_.path_of(200), file));
    for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 60) {
      EXPECT_NE(reason_for(file, whole.substr(0, size)), "not detected") << file << " " << size;
    }
    EXPECT_NE(reason_for(file, whole + '\0'), "not detected") << file;
    EXPECT_NE(reason_for(file, std::string(whole.size(), '\0')), "not detected") << file;
  }
}

TEST_F(DamageTest, MissingFilesAreNamed) {
  for (const std::string& file : files_) {
    const std::string path = join_path(store_.path_of(200), file);
    ASSERT_EQ(::rename(path.c_str(), (folder_ / "aside").c_str()), 0);
    const FoundCheckpoint found = store_.newest_valid();
    ASSERT_EQ(::rename((folder_ / "aside").c_str(), path.c_str()), 0);
    ASSERT_TRUE(found.checkpoint);
    EXPECT_EQ(found.checkpoint->step(), 100);
    EXPECT_NE(found.rejected.at(0).reason.find(file), std::string::npos) << found.rejected[0].reason;
  }
}

TEST_F(DamageTest, WithNothingValidAllAreNamed) {
  for (const int64_t step : {100, 200}) overwrite(join_path(store_.path_of(step), "state.json"), "{}");
  const FoundCheckpoint found = store_.newest_valid();
  EXPECT_FALSE(found.checkpoint);
  EXPECT_EQ(found.rejected.size(), 2u);
}

// A disk that returns other bytes than it was given: the checkpoint never becomes visible.
TEST(CheckpointFaults, AWriteThatStoresOtherBytesIsNotPublished) {
  class LyingFileSystem final : public PassingFileSystem {
   public:
    int64_t write(int fd, Bytes bytes) override {
      std::vector<std::byte> copy(bytes.begin(), bytes.end());
      if (copy.size() > 500 && copy[0] != std::byte('{')) copy[400] ^= std::byte(1);
      return real_.write(fd, copy);
    }
  } lying;
  const TemporaryFolder folder;
  SampleModel model;
  model.set(100);
  CheckpointStore good(folder.path());
  model.save(good);
  model.set(200);
  CheckpointStore bad(folder.path(), {}, lying);
  try {
    model.save(bad);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("what was read back is not what was written: model.safetensors"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(load_newest(good), 100);
}

// Saves steps 1, 2, 3, ... until killed; after each commit tells its step through the pipe.
[[noreturn]] void save_until_killed(const std::string& folder, int64_t first_step, int pipe_end) {
  FaultyFileSystem fs;  // without syncs: a kill is not a power cut
  CheckpointStore store(folder, {.keep = 2}, fs);
  SampleModel model;
  for (int64_t step = first_step;; ++step) {
    model.set(step);
    model.save(store);
    if (::write(pipe_end, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

TEST(CheckpointFaults, AKilledProcessLosesNoCommittedCheckpoint) {
  const TemporaryFolder folder;
  std::mt19937 random(13);
  int64_t committed = 0;
  int num_unfinished = 0;
  for (int kill = 0; kill < 30; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_until_killed(folder.path(), committed + 1, ends[1]);
    ::close(ends[1]);
    // Waits for a few saves, then for a random part of the time that one takes.
    int64_t step = 0;
    std::chrono::microseconds save_time{};
    for (uint32_t left = 1 + random() % 3; left > 0; --left) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_EQ(::read(ends[0], &step, sizeof step), ssize_t(sizeof step));
      committed = step;
      save_time = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
    }
    ::usleep(uint32_t(random() % uint64_t(std::clamp<int64_t>(save_time.count(), 1, 300'000))));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(ends[0], &step, sizeof step) == sizeof step) committed = step;
    ::close(ends[0]);
    const CheckpointStore store(folder.path());
    for (const std::string& name : list_folder(FileSystem::real(), folder.path())) {
      num_unfinished += name.ends_with(".partial");
    }
    const int64_t found = load_newest(store);
    EXPECT_TRUE(found == committed || found == committed + 1) << "found " << found << ", committed " << committed;
    committed = std::max(committed, found);
  }
  EXPECT_GE(committed, 30);
  EXPECT_GT(num_unfinished, 0) << "no kill hit a save";
}

}  // namespace
}  // namespace weft
