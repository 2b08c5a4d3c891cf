// Text files: what a path, a folder or a pattern of a recipe names, in an order that does not change.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct TextFile {
  std::string path;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
};

struct TextFiles {
  std::vector<TextFile> files;  // sorted by path
  int64_t total_bytes = 0;
};

// `where` is a file, a folder (all regular files below it, but nothing whose name begins with a dot) or a pattern:
// * ? [...] match within a name, ** any number of folders. `key` is the config key that UsageError names when there
// is nothing there.
TextFiles find_text_files(const std::string& where, std::string_view key);

}  // namespace weft
