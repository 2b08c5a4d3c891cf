// Folders of runs: one run at a time writes each, whoever asks for them by whatever name.
#include "weft/train/run_lock.h"

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "support/message_of.h"

namespace weft {
namespace {

class RunLockTest : public testing::Test {
 protected:
  // Nothing where there is none.
  std::string refusal(const std::string& log_dir, const std::string& checkpoint_dir) const {
    try {
      lock_run(folder_ / log_dir, folder_ / checkpoint_dir);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  }
  TemporaryFolder folder_;
};

TEST_F(RunLockTest, KeepsOthersOutOfBothFoldersUntilItEnds) {
  {
    const auto held = lock_run(folder_ / "a", folder_ / "a/checkpoints");
    const std::string message = refusal("a", "b");
    EXPECT_TRUE(message.starts_with(fmt::format("another run (process {} on ", ::getpid()))) << message;
    EXPECT_TRUE(
        message.ends_with(fmt::format(") uses {}: wait until it has ended, or write another log.dir", folder_ / "a")))
        << message;
    EXPECT_NE(refusal("./../" + file_name_of(folder_.path()) + "/a", "b"), "");
    EXPECT_NE(refusal("b", "a/checkpoints").find("write another checkpoint.dir"), std::string::npos);
    EXPECT_EQ(refusal("b", "b/checkpoints"), "");
  }
  EXPECT_EQ(refusal("a", "a/checkpoints"), "");
}

TEST_F(RunLockTest, DoesNotLockItselfOutOfOneFolderForBoth) {
  EXPECT_EQ(lock_run(folder_ / "a", folder_ / "./a").size(), 1u);
  EXPECT_EQ(lock_run(folder_ / "a", "").size(), 1u);
}

TEST_F(RunLockTest, ASupervisorLeavesItsFolderToItsJobAlone) {
  const auto supervise = [&] { return lock_supervision(folder_ / "a", folder_ / "a/checkpoints"); };
  {
    const LockFile supervision = supervise();
    EXPECT_TRUE(message_of(supervise).starts_with("another run with --restarts or --hosts (process "));
    EXPECT_EQ(refusal("a", "a/checkpoints"), "") << "the job";
  }
  const auto run = lock_run(folder_ / "b", folder_ / "a/checkpoints");
  EXPECT_TRUE(message_of(supervise).starts_with("another run (process "));
}

TEST_F(RunLockTest, WithoutLocksRunsGoOn) {
  class WithoutLocks final : public PassingFileSystem {
    int lock(int) override { return -ENOLCK; }
  } fs;
  const auto first = lock_run(folder_ / "a", folder_ / "c", fs);
  EXPECT_NO_THROW(lock_run(folder_ / "a", folder_ / "c", fs));
}

}  // namespace
}  // namespace weft
