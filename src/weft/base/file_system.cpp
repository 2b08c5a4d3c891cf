// The real file system: Linux's calls, each turned into a value or -errno.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>

#include "weft/base/file.h"

namespace weft {
namespace {

template <class T>
T result_of(T result) {
  return result < 0 ? T(-errno) : result;
}

class RealFileSystem final : public FileSystem {
 public:
  int open(const std::string& path, OpenMode mode) override {
    const int flags = mode == OpenMode::create    ? O_WRONLY | O_CREAT | O_EXCL
                      : mode == OpenMode::scratch ? O_RDWR | O_CREAT | O_EXCL
                      : mode == OpenMode::folder  ? O_RDONLY | O_DIRECTORY
                      : mode == OpenMode::lock    ? O_RDWR | O_CREAT
                                                  : O_RDONLY | O_NONBLOCK;  // a FIFO must not block
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    // A file system in memory refuses, which is as well.
    if (fd >= 0 && mode == OpenMode::scratch) ::fcntl(fd, F_SETFL, O_DIRECT);
    return result_of(fd);
  }
  int64_t size(int fd) override {
    struct stat status {};
    if (::fstat(fd, &status) < 0) return -errno;
    return S_ISREG(status.st_mode) ? int64_t(status.st_size) : S_ISDIR(status.st_mode) ? -EISDIR : -ESPIPE;
  }
  int64_t read(int fd, std::span<std::byte> into, uint64_t offset) override {
    return result_of(int64_t(::pread(fd, into.data(), into.size(), off_t(offset))));
  }
  int64_t write(int fd, Bytes bytes) override { return result_of(int64_t(::write(fd, bytes.data(), bytes.size()))); }
  int64_t write_at(int fd, Bytes bytes, uint64_t offset) override {
    return result_of(int64_t(::pwrite(fd, bytes.data(), bytes.size(), off_t(offset))));
  }
  int allocate(int fd, uint64_t bytes) override { return result_of(::fallocate(fd, 0, 0, off_t(bytes))); }
  int fsync(int fd) override { return result_of(::fsync(fd)); }
  int close(int fd) override { return result_of(::close(fd)); }
  int rename(const std::string& from, const std::string& to) override {
    return result_of(std::rename(from.c_str(), to.c_str()));
  }
  int unlink(const std::string& path) override { return result_of(::unlink(path.c_str())); }
  int rmdir(const std::string& path) override { return result_of(::rmdir(path.c_str())); }
  int mkdir(const std::string& path) override { return result_of(::mkdir(path.c_str(), 0755)); }

  int list(const std::string& folder, std::vector<std::string>& names) override {
    DIR* stream = ::opendir(folder.c_str());
    if (!stream) return -errno;
    errno = 0;
    while (const dirent* entry = ::readdir(stream)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int code = errno;
    ::closedir(stream);
    return -code;
  }

  int64_t free_bytes(const std::string& folder) override {
    struct statvfs status {};
    if (::statvfs(folder.c_str(), &status) < 0) return -errno;
    const auto bytes = checked_mul(status.f_bavail, status.f_frsize);
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    return int64_t(bytes ? std::min<uint64_t>(*bytes, kMost) : kMost);
  }
  int lock(int fd) override { return result_of(::flock(fd, LOCK_EX | LOCK_NB)); }
};

}  // namespace

FileSystem& FileSystem::real() {
  static RealFileSystem instance;  // it has no state
  return instance;
}

}  // namespace weft
