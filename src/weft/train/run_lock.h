// lock_run: keeps other runs out of the folders that a run writes, since each would remove what the other is writing.
#pragma once
#include <string>
#include <vector>

#include "weft/base/file.h"

namespace weft {

// For the process that writes the run's files, until they are destroyed. The folders are made where they do not
// exist; checkpoint_dir may be empty. Throws Error naming the process that writes one of them already.
std::vector<LockFile> lock_run(const std::string& log_dir, const std::string& checkpoint_dir,
                               FileSystem& fs = FileSystem::real());

// For a supervisor, whose job locks its run by itself. Throws Error where there is another one, or a run now.
LockFile lock_supervision(const std::string& log_dir, const std::string& checkpoint_dir,
                          FileSystem& fs = FileSystem::real());

}  // namespace weft
