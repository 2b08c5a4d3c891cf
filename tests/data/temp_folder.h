// TempFolder: a temporary folder with shortcuts for writing and reading small files in it.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "base/temporary_folder.h"

namespace weft {

class TempFolder : public TemporaryFolder {
 public:
  std::string path(std::string_view name = "") const { return name.empty() ? TemporaryFolder::path() : *this / name; }

  std::string write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }
};

inline std::string slurp(const std::string& path) { return read_file(path, uint64_t(1) << 32); }

}  // namespace weft
