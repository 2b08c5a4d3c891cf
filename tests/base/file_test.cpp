// Files: what is written is read back, every failing call is survived or named, and nothing is ever half there.
#include "weft/base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"
#include "support/message_of.h"

namespace weft {
namespace {

TEST(File, AtomicWriteIsReadBackAndReplaces) {
  const TemporaryFolder folder;
  for (const std::string content : {"first", "", "third"}) {
    write_file_atomically(FileSystem::real(), folder / "a", content);
    EXPECT_EQ(read_file(folder / "a", 100), content);
    EXPECT_EQ(text_of(MappedFile(folder / "a").bytes()), content);
  }
  EXPECT_EQ(list_folder(FileSystem::real(), folder.path()), std::vector<std::string>{"a"});
}

class FileSweepTest : public testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(Faults, FileSweepTest,
                         testing::Values(Fault::eio, Fault::enospc, Fault::eintr, Fault::short_write,
                                         Fault::eio_for_good, Fault::enospc_for_good),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(FileSweepTest, AtomicWriteLeavesOldOrNewAtEveryFailure) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  int failures = 0;
  for (int64_t nth = 0;; ++nth) {
    write_file_atomically(FileSystem::real(), path, "old content");
    FaultyFileSystem fs(GetParam(), nth);
    bool failed = false;
    try {
      write_file_atomically(fs, path, "the new content");
    } catch (const Error& e) {
      failed = true;
      ++failures;
      EXPECT_NE(std::string(e.what()).find(folder.path()), std::string::npos) << e.what();
    }
    const std::string content = read_file(path, 100);
    EXPECT_TRUE(content == "the new content" || (failed && content == "old content")) << nth << ": " << content;
    if (!fs.fired()) break;
  }
  const bool is_survivable = GetParam() == Fault::eintr || GetParam() == Fault::short_write;
  EXPECT_EQ(failures == 0, is_survivable) << failures;
}

TEST(File, MessagesNamePathReasonBytesAndRemedy) {
  const TemporaryFolder folder;
  const std::string missing = folder / "missing";
  EXPECT_EQ(message_of([&] { read_file(missing, 10); }),
            fmt::format("cannot open {}: No such file or directory", missing));
  for (int64_t nth = 0; nth < 4; ++nth) {
    FaultyFileSystem full(Fault::enospc_for_good, nth);
    const std::string message = message_of([&] {
      OutputFile file(full, folder / fmt::format("big{}", nth));
      file.reserve(3000);
      file.write(std::vector<std::byte>(1000));
      file.write(std::vector<std::byte>(2000));
    });
    EXPECT_NE(message.find(folder / "big"), std::string::npos) << message;
    EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
    EXPECT_NE(message.find("free some space"), std::string::npos) << message;
    const std::string bytes = nth == 0 ? "more needed" : nth == 3 ? "2000 bytes" : "3000 bytes";
    EXPECT_NE(message.find(bytes), std::string::npos) << message;
  }
  FaultyFileSystem fs;
  fs.pretend_free_bytes(1000);
  EXPECT_EQ(message_of([&] { require_free_space(fs, folder.path(), 2048, "a checkpoint"); }),
            fmt::format("a checkpoint needs 2048 bytes (2.00 KiB) in {}, but only 1000 (1000 bytes) are free: free "
                        "some space or choose another folder",
                        folder.path()));
  EXPECT_NO_THROW(require_free_space(fs, folder.path(), 1000, "a checkpoint"));
}

TEST(File, RefusesWhatIsNotARegularFileAndWhatIsTooLong) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of([&] { read_file(folder.path(), 10); }).find("Is a directory"), std::string::npos);
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(message_of([&] { read_file(fifo, 10); }).find("no regular file"), std::string::npos);
  EXPECT_NE(message_of([&] { MappedFile file(fifo); }).find("no regular file"), std::string::npos);
  write_file_atomically(FileSystem::real(), folder / "a", "0123456789");
  EXPECT_EQ(read_file(folder / "a", 10), "0123456789");
  EXPECT_NE(message_of([&] { read_file(folder / "a", 9); }).find("more than the 9 bytes allowed"), std::string::npos);
}

TEST(File, WhatHasNoSizeIsReadToItsEnd) {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo", long_text(100000, 'x');
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  {
    const std::jthread writer([&] { std::ofstream(fifo) << long_text; });
    EXPECT_EQ(read_to_end(fifo, 100000), long_text);
  }
  write_file_atomically(FileSystem::real(), folder / "a", "0123456789");
  EXPECT_EQ(read_to_end(folder / "a", 10), "0123456789");
  EXPECT_NE(message_of([&] { read_to_end(folder / "a", 9); }).find("more than the 9 bytes"), std::string::npos);
  EXPECT_NE(message_of([&] { read_to_end("/dev/zero", 9); }).find("more than the 9 bytes"), std::string::npos);
  EXPECT_NE(message_of([&] { read_to_end(folder.path(), 9); }).find("Is a directory"), std::string::npos);
  EXPECT_NE(message_of([&] { read_to_end(folder / "none", 9); }).find("cannot open"), std::string::npos);
}

// As of a file system that is mounted for reading only, which refuses to remove even what is not there.
TEST(File, WhatCannotBeWrittenIsSaidSo) {
  const TemporaryFolder folder;
  FaultyFileSystem fs(Fault::eio, 0);
  const std::string message = message_of([&] { write_file_atomically(fs, folder / "a", "x"); });
  EXPECT_TRUE(message.starts_with(fmt::format("cannot write {}", folder / "a"))) << message;
}

TEST(File, MappedRangesNeverLeaveTheFile) {
  const TemporaryFolder folder;
  write_file_atomically(FileSystem::real(), folder / "a", "0123456789");
  const MappedFile file(folder / "a");
  EXPECT_EQ(text_of(file.range(2, 3, "x")), "234");
  EXPECT_TRUE(file.range(10, 0, "x").empty());
  constexpr uint64_t kHuge = UINT64_MAX;
  for (const auto& [offset, size] : {std::pair<uint64_t, uint64_t>{0, 11},
                                     {11, 0},
                                     {10, 1},
                                     {kHuge, 1},
                                     {1, kHuge},
                                     {kHuge, kHuge},
                                     {5, kHuge - 4}}) {
    EXPECT_THROW(file.range(offset, size, "x"), Error) << offset << " " << size;
  }
}

TEST(File, FoldersAreMadeListedAndRemoved) {
  const TemporaryFolder folder;
  FileSystem& fs = FileSystem::real();
  make_folders(fs, folder / "a/b/c");
  make_folders(fs, folder / "a/b/c");
  write_file_atomically(fs, folder / "a/b/file", "x");
  EXPECT_EQ(list_folder(fs, folder / "a/b"), (std::vector<std::string>{"c", "file"}));
  EXPECT_TRUE(exists(fs, folder / "a/b/file"));
  remove_folder(fs, folder / "a");
  remove_folder(fs, folder / "a");
  EXPECT_FALSE(exists(fs, folder / "a"));
}

TEST(File, ALockHasOneHolderWhoIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "lock";
  write_file_atomically(FileSystem::real(), path, std::string(200, 'x') + "\n");  // of a holder with a longer name
  {
    LockFile held(FileSystem::real(), path);
    EXPECT_EQ(held.holder(), "");
    const LockFile moved = std::move(held);
    EXPECT_TRUE(LockFile(FileSystem::real(), path).holder().starts_with(fmt::format("process {} on ", ::getpid())));
    EXPECT_EQ(LockFile(FileSystem::real(), path).holder().find_first_of("x\n"), std::string::npos);
  }
  EXPECT_EQ(LockFile(FileSystem::real(), path).holder(), "");
}

TEST(File, WhereThereAreNoLocksEverybodyHasThem) {
  class WithoutLocks final : public PassingFileSystem {
   public:
    explicit WithoutLocks(int code) : code_(code) {}
    int lock(int) override { return -code_; }

   private:
    int code_;
  };
  const TemporaryFolder folder;
  for (const int code : {ENOLCK, EOPNOTSUPP, ENOSYS}) {
    WithoutLocks fs(code);
    const LockFile first(fs, folder / "lock"), second(fs, folder / "lock");
    EXPECT_EQ(first.holder() + second.holder(), "") << code;
  }
}

TEST(File, PathsAreTakenApart) {
  EXPECT_EQ(parent_of("a"), ".");
  EXPECT_EQ(parent_of("/a"), "/");
  EXPECT_EQ(parent_of("a/b/"), "a");
  EXPECT_EQ(file_name_of("a/b/"), "b");
  EXPECT_EQ(file_name_of("b"), "b");
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(human_bytes(1023), "1023 bytes");
  EXPECT_EQ(human_bytes(3 << 29), "1.50 GiB");
}

TEST(Bytes, ArithmeticNeverWraps) {
  EXPECT_EQ(checked_add(UINT64_MAX, 0), UINT64_MAX);
  EXPECT_FALSE(checked_add(UINT64_MAX, 1));
  EXPECT_EQ(checked_mul(uint64_t(1) << 32, (uint64_t(1) << 32) - 1), ((uint64_t(1) << 32) - 1) << 32);
  EXPECT_FALSE(checked_mul(uint64_t(1) << 32, uint64_t(1) << 32));
  EXPECT_EQ(checked_mul(0, UINT64_MAX), 0u);
}

}  // namespace
}  // namespace weft
