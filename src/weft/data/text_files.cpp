// Text files: walking folders and matching patterns.
#include "weft/data/text_files.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// What a folder holds, without dot files. Links to folders are not followed: they may lead back up.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? "." : folder)) {
    const fs::path path = folder / entry.path().filename();
    if (!is_hidden(path)) entries.push_back(path);
  }
  return entries;
}

bool is_walkable(const fs::path& path) { return fs::is_directory(path) && !fs::is_symlink(path); }

void add_file(const fs::path& path, std::vector<TextFile>& out) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  out.push_back({path.string(), int64_t(status.st_size),
                 int64_t(status.st_mtim.tv_sec) * 1'000'000'000 + int64_t(status.st_mtim.tv_nsec)});
}

void add_folder(const fs::path& folder, std::vector<TextFile>& out) {
  for (const fs::path& path : entries_of(folder)) is_walkable(path) ? add_folder(path, out) : add_file(path, out);
}

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

// Adds the files below `folder` that the rest of a pattern, from `part` on, matches.
void add_matches(const fs::path& folder, fs::path::iterator part, const fs::path::iterator& end,
                 std::vector<TextFile>& out) {
  const std::string name = part->string();
  const fs::path::iterator next = std::next(part);
  const bool is_last = next == end;
  if (!is_pattern(name)) {
    const fs::path path = folder / *part;
    if (is_last) {
      add_file(path, out);
    } else if (fs::is_directory(path)) {
      add_matches(path, next, end, out);
    }
    return;
  }
  if (name == "**" && !is_last) add_matches(folder, next, end, out);
  for (const fs::path& path : entries_of(folder)) {
    if (name == "**") {
      if (is_walkable(path)) {
        add_matches(path, part, end, out);
      } else if (is_last) {
        add_file(path, out);
      }
    } else if (::fnmatch(name.c_str(), path.filename().c_str(), 0) == 0) {
      if (is_last) {
        add_file(path, out);
      } else if (fs::is_directory(path)) {
        add_matches(path, next, end, out);
      }
    }
  }
}

}  // namespace

TextFiles find_text_files(const std::string& where, std::string_view key) {
  TextFiles found;
  try {
    if (fs::is_directory(where)) {
      add_folder(where, found.files);
    } else if (fs::exists(where)) {
      add_file(where, found.files);
    } else if (is_pattern(where)) {
      const fs::path pattern(where);
      add_matches({}, pattern.begin(), pattern.end(), found.files);
    } else {
      throw UsageError(
          "{} = \"{}\": there is no such file or folder; write the path of a text file, a folder or a "
          "pattern such as \"texts/**/*.txt\"",
          key, where);
    }
  } catch (const fs::filesystem_error& error) {
    throw Error("{} = \"{}\": cannot read {}: {}", key, where, error.path1().string(), error.code().message());
  }
  if (found.files.empty())
    throw UsageError(
        "{} = \"{}\" names no regular file; write the path of a text file, of a folder that holds some, "
        "or a pattern that matches some",
        key, where);
  const auto by_path = [](const TextFile& a, const TextFile& b) { return a.path < b.path; };
  const auto is_same = [](const TextFile& a, const TextFile& b) { return a.path == b.path; };
  std::sort(found.files.begin(), found.files.end(), by_path);
  found.files.erase(std::unique(found.files.begin(), found.files.end(), is_same), found.files.end());
  for (const TextFile& file : found.files) found.total_bytes += file.bytes;
  return found;
}

}  // namespace weft
