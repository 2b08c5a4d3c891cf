// The repository keeps its own rules: include direction, forbidden headers, file sizes, first lines, paths, the map.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "architecture/rules.h"

namespace weft::architecture {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = WEFT_SOURCE_DIR;

struct File {
  std::string path;  // relative to the repository
  std::string text;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_source(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".h" || ending == ".cpp" || ending == ".cu" || ending == ".cuh";
}

bool is_skipped_folder(const std::string& name) {
  return name == "build" || name == "runs" || (name.starts_with('.') && name != ".ci" && name != ".github");
}

// The files below a folder of the repository that `wanted` accepts; a missing folder has none.
std::vector<File> files_below(const std::string& folder, const std::function<bool(const fs::path&)>& wanted) {
  std::vector<File> files;
  const fs::path start = kRoot / folder;
  if (!fs::exists(start)) return files;
  for (auto at = fs::recursive_directory_iterator(start); at != fs::recursive_directory_iterator(); ++at) {
    if (at->is_directory() && is_skipped_folder(at->path().filename().string())) at.disable_recursion_pending();
    if (!at->is_regular_file() || !wanted(at->path())) continue;
    files.push_back({at->path().lexically_relative(kRoot).generic_string(), read(at->path())});
  }
  return files;
}

std::vector<File> sources_below(const std::vector<std::string>& folders) {
  std::vector<File> files;
  for (const std::string& folder : folders) {
    std::vector<File> more = files_below(folder, is_source);
    std::move(more.begin(), more.end(), std::back_inserter(files));
  }
  return files;
}

void expect_none(const Violations& found) {
  for (const Violation& violation : found) ADD_FAILURE() << violation.to_string();
}

TEST(RepositoryTest, IncludesPointDown) {
  const std::vector<File> files = sources_below({"src/weft", "apps"});
  ASSERT_GT(files.size(), 10u) << "no sources below " << kRoot;
  for (const File& file : files) expect_none(check_includes(file.path, file.text));
}

TEST(RepositoryTest, IncludedFilesExist) {
  for (const File& file : sources_below({"src/weft", "apps"})) {
    for (const Include& include : includes_of(file.text)) {
      if (!include.quoted || guard_of(include.name) != nullptr) continue;
      const fs::path beside = (kRoot / file.path).parent_path() / include.name;
      EXPECT_TRUE(fs::exists(kRoot / "src" / include.name) || fs::exists(beside))
          << file.path << ":" << include.line << ": there is no \"" << include.name << "\" below src/ or beside it";
    }
  }
}

TEST(RepositoryTest, ModelsNameNoStrategy) {
  for (const File& file : sources_below({"src/weft/models"})) expect_none(check_no_strategy(file.path, file.text));
}

TEST(RepositoryTest, TestsOfDevicesAreForCardsToo) {
  for (const File& file : sources_below({"tests/cuda"})) {
    const bool may_name_it = file.path.starts_with("tests/cuda/emulat");
    if (!may_name_it) expect_none(check_is_for_cards_too(file.path, file.text));
  }
}

TEST(RepositoryTest, FilesAreSmallAndSayWhatTheyOffer) {
  for (const File& file : sources_below({"src", "apps", "tests", "examples", "bench"})) {
    expect_none(check_shape_of_file(file.path, file.text));
  }
}

TEST(RepositoryTest, HasNoPathOfOneMachine) {
  std::vector<std::string> places = {std::string("/home") + "/", std::string("/root") + "/", kRoot.string() + "/"};
  if (const char* home = std::getenv("HOME"); home != nullptr && std::string(home).size() > 1) {
    places.push_back(std::string(home) + "/");
  }
  const auto is_text = [](const fs::path& path) { return fs::file_size(path) < 1'000'000; };
  for (const File& file : files_below(".", is_text)) {
    if (file.text.find('\0') == std::string::npos) expect_none(check_no_absolute_path(file.path, file.text, places));
  }
}

TEST(RepositoryTest, TheMapIsShortAndNamesEveryFolder) {
  const std::string path = "docs/ARCHITECTURE.md";
  const std::string map = read(kRoot / path);
  ASSERT_FALSE(map.empty()) << path << " is missing";
  expect_none(check_line_count(path, map, 200));
  for (const auto& entry : fs::directory_iterator(kRoot / "src/weft")) {
    const std::string folder = entry.path().filename().string() + "/";
    EXPECT_NE(map.find(folder), std::string::npos) << path << ":1: the code map does not name src/weft/" << folder;
  }
}

}  // namespace
}  // namespace weft::architecture
