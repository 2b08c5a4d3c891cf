// A folder for one test, removed with all that is in it; in memory where the machine has such a file system.
#pragma once
#include <cstdlib>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/base/file.h"

namespace weft {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const std::filesystem::path base =
        std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = (base / "weft-test-XXXXXX").string();
    check(::mkdtemp(path_.data()) != nullptr, "cannot make a temporary folder in {}", base.string());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

}  // namespace weft
