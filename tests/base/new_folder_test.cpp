// A folder of files is there whole or not at all, and what is left of a failure is in nobody's way.
#include "weft/base/new_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/faulty_file_system.h"
#include "base/temporary_folder.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;

Names names_in(const std::string& folder) { return list_folder(FileSystem::real(), folder); }

void fill(FileSystem& fs, const std::string& folder) {
  NewFolder made(fs, folder);
  for (const char* name : {"config.json", "weights"}) write_file_atomically(fs, join_path(made.path(), name), name);
  made.commit("config.json");
}

TEST(NewFolderTest, AppearsAtTheEnd) {
  const TemporaryFolder folder;
  const std::string path = folder / "a/b";
  {
    NewFolder made(FileSystem::real(), path + "/");
    EXPECT_EQ(made.path(), path + ".partial");
    EXPECT_FALSE(std::filesystem::exists(path));
    write_file_atomically(FileSystem::real(), join_path(made.path(), "x"), std::string_view("x"));
    made.commit("x");
  }
  EXPECT_EQ(names_in(path), Names{"x"});
  EXPECT_EQ(names_in(folder / "a"), Names{"b"});
}

TEST(NewFolderTest, TakesOneThatIsEmptyAndNoOther) {
  const TemporaryFolder folder;
  const std::string path = folder / "b";
  std::filesystem::create_directory(path);
  fill(FileSystem::real(), path);
  EXPECT_EQ(names_in(path), (Names{"config.json", "weights"}));
  EXPECT_THROW(fill(FileSystem::real(), path), UsageError);
  EXPECT_EQ(names_in(path), (Names{"config.json", "weights"}));
}

// As after a signal: nobody has cleaned up.
TEST(NewFolderTest, ReplacesWhatATryBeforeHasLeft) {
  for (const bool is_there : {false, true}) {
    const TemporaryFolder folder;
    const std::string path = folder / "b", left = is_there ? path + "/.partial" : path + ".partial";
    std::filesystem::create_directories(left);
    std::ofstream(left + "/weights.tmp") << "half";
    fill(FileSystem::real(), path);
    EXPECT_EQ(names_in(path), (Names{"config.json", "weights"}));
    EXPECT_EQ(names_in(folder.path()), Names{"b"});
  }
}

TEST(NewFolderTest, AFailureLeavesNothing) {
  for (const bool is_there : {false, true}) {
    for (const Fault fault : {Fault::eio, Fault::enospc}) {
      bool has_failed = true;
      for (int64_t n = 0; has_failed; ++n) {
        const TemporaryFolder folder;
        const std::string path = folder / "b";
        if (is_there) std::filesystem::create_directory(path);
        FaultyFileSystem fs(fault, n);
        try {
          fill(fs, path);
          has_failed = fs.fired();
        } catch (const Error&) {
          // Where only names could not be made durable or removed, all of it is there.
          const bool is_whole = std::filesystem::exists(path + "/config.json");
          if (is_whole) EXPECT_TRUE(std::filesystem::exists(path + "/weights")) << n;
          if (!is_whole) EXPECT_FALSE(std::filesystem::exists(path + "/weights")) << n;
          if (!is_whole) EXPECT_NO_THROW(fill(FileSystem::real(), path)) << n;
        }
        ASSERT_LT(n, 200);
      }
    }
  }
}

}  // namespace
}  // namespace weft
