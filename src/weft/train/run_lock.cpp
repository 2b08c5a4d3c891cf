// lock_run: a file in each folder, that only one process can lock.
#include "weft/train/run_lock.h"

#include <filesystem>

namespace weft {
namespace {

LockFile lock_folder(FileSystem& fs, const std::string& folder, const char* name, std::string_view user,
                     std::string_view key) {
  make_folders(fs, folder);
  LockFile file(fs, join_path(folder, name));
  if (!file.holder().empty())
    throw Error("another {} ({}) uses {}: wait until it has ended, or write another {}", user, file.holder(), folder,
                key);
  return file;
}

}  // namespace

std::vector<LockFile> lock_run(const std::string& log_dir, const std::string& checkpoint_dir, FileSystem& fs) {
  constexpr const char* kName = ".lock";
  std::vector<LockFile> held;
  held.push_back(lock_folder(fs, log_dir, kName, "run", "log.dir"));
  if (checkpoint_dir.empty()) return held;
  make_folders(fs, checkpoint_dir);
  std::error_code error;
  if (!std::filesystem::equivalent(log_dir, checkpoint_dir, error))
    held.push_back(lock_folder(fs, checkpoint_dir, kName, "run", "checkpoint.dir"));
  return held;
}

LockFile lock_supervision(const std::string& log_dir, const std::string& checkpoint_dir, FileSystem& fs) {
  LockFile file = lock_folder(fs, log_dir, ".supervisor.lock", "run with --restarts or --hosts", "log.dir");
  lock_run(log_dir, checkpoint_dir, fs);  // only to see that nobody has it
  return file;
}

}  // namespace weft
