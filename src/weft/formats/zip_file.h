// Zip archives whose entries are stored as they are, as PyTorch writes them: entries by name, read through a mapping.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/file.h"

namespace weft {

struct ZipEntry {
  std::string name;  // only ever compared: no file is made of it
  uint64_t begin = 0, size = 0;
};

// An open archive, with zip64. Opening checks all of its directory: entries lie inside the file and overlap neither
// each other nor the directory, no name appears twice, nothing is compressed or encrypted. Throws Error naming the
// file, the entry and what is wrong.
class ZipFile {
 public:
  explicit ZipFile(const std::string& path, FileSystem& fs = FileSystem::real());
  static bool is_zip(Bytes begin_of_file);

  const std::string& path() const { return file_.path(); }
  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  const ZipEntry* find(std::string_view name) const;
  Bytes bytes(const ZipEntry& entry) const;  // valid while the file is open

 private:
  struct Directory {
    uint64_t begin = 0, size = 0, num_entries = 0;
  };
  Directory find_directory() const;
  Directory read_zip64_end(uint64_t locator) const;
  uint64_t read_entry(uint64_t at, uint64_t directory_end, uint64_t directory_begin);
  void check_layout() const;

  MappedFile file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace weft
