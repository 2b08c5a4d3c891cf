// MemoryFile: a file system in which every path is one file in memory, so that readers of files can be fuzzed
// quickly.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/faulty_file_system.h"

namespace weft {

class MemoryFile final : public PassingFileSystem {
 public:
  explicit MemoryFile(Bytes content) : fd_(::memfd_create("weft-fuzz", MFD_CLOEXEC)) {
    check(fd_ >= 0 && ::write(fd_, content.data(), content.size()) == ssize_t(content.size()),
          "cannot make a file in memory");
  }
  ~MemoryFile() override { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int open(const std::string&, OpenMode mode) override {
    if (mode != OpenMode::read) return -EACCES;
    const int copy = ::dup(fd_);
    return copy >= 0 ? copy : -errno;
  }

 private:
  int fd_;
};

// Runs `action`, which may fail only by an Error.
template <class Action>
void expect_errors_only(Action&& action) {
  try {
    action();
  } catch (const Error&) {
  }
}

}  // namespace weft
