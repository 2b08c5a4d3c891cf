// NewFolder: one rename of the whole, or one of each file.
#include "weft/base/new_folder.h"

#include <algorithm>

namespace weft {
namespace {

constexpr std::string_view kPartial = ".partial";

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// All of these files, or none.
void move_all(FileSystem& fs, const std::vector<std::string>& names, const std::string& from, const std::string& to) {
  size_t moved = 0;
  try {
    for (; moved < names.size(); ++moved) rename_path(fs, join_path(from, names[moved]), join_path(to, names[moved]));
  } catch (const Error&) {
    for (size_t i = 0; i < moved; ++i) fs.unlink(join_path(to, names[i]));
    throw;
  }
}

}  // namespace

NewFolder::NewFolder(FileSystem& fs, const std::string& folder)
    : fs_(fs), folder_(without_slashes(folder)), is_inside_(exists(fs, folder_)) {
  partial_ = is_inside_ ? join_path(folder_, kPartial) : folder_ + std::string(kPartial);
  if (is_inside_)
    for (const std::string& name : list_folder(fs_, folder_))
      if (name != kPartial) throw UsageError("{} is not empty: name a new folder", folder_);
  remove_folder(fs_, partial_);
  make_folders(fs_, partial_);
}

NewFolder::~NewFolder() {
  if (is_done_) return;
  try {
    remove_folder(fs_, partial_);
  } catch (const Error&) {  // it stays until the next try, as after a crash
  }
}

void NewFolder::commit(std::string_view last) {
  check(!is_done_, "{} is committed once", folder_);
  sync_folder(fs_, partial_);
  if (is_inside_) {
    std::vector<std::string> names = list_folder(fs_, partial_);
    std::ranges::stable_partition(names, [&](const std::string& name) { return name != last; });
    move_all(fs_, names, partial_, folder_);
    is_done_ = true;
    remove_folder(fs_, partial_);
    return sync_folder(fs_, folder_);
  }
  rename_path(fs_, partial_, folder_);
  is_done_ = true;
  sync_folder(fs_, parent_of(folder_));
}

}  // namespace weft
