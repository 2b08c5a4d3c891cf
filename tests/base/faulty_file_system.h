// A file system whose Nth call fails, for sweeping over every N; the calls before and after it are real.
#pragma once
#include <atomic>
#include <cerrno>
#include <memory>

#include "weft/base/file.h"

namespace weft {

enum class Fault { none, eio, enospc, eintr, short_write, eio_for_good, enospc_for_good };

inline std::string_view name_of(Fault fault) {
  constexpr std::string_view kNames[] = {"none",        "eio",          "enospc",         "eintr",
                                         "short_write", "eio_for_good", "enospc_for_good"};
  return kNames[size_t(fault)];
}

// Passes every call on to the real file system: for tests that change a few.
class PassingFileSystem : public FileSystem {
 public:
  int open(const std::string& path, OpenMode mode) override { return real_.open(path, mode); }
  int64_t size(int fd) override { return real_.size(fd); }
  int64_t read(int fd, std::span<std::byte> into, uint64_t offset) override { return real_.read(fd, into, offset); }
  int64_t write(int fd, Bytes bytes) override { return real_.write(fd, bytes); }
  int64_t write_at(int fd, Bytes bytes, uint64_t offset) override { return real_.write_at(fd, bytes, offset); }
  int allocate(int fd, uint64_t bytes) override { return real_.allocate(fd, bytes); }
  int fsync(int fd) override { return real_.fsync(fd); }
  int close(int fd) override { return real_.close(fd); }
  int rename(const std::string& from, const std::string& to) override { return real_.rename(from, to); }
  int unlink(const std::string& path) override { return real_.unlink(path); }
  int rmdir(const std::string& path) override { return real_.rmdir(path); }
  int mkdir(const std::string& path) override { return real_.mkdir(path); }
  int list(const std::string& folder, std::vector<std::string>& names) override { return real_.list(folder, names); }
  int64_t free_bytes(const std::string& folder) override { return real_.free_bytes(folder); }
  int lock(int fd) override { return real_.lock(fd); }

 protected:
  FileSystem& real_ = FileSystem::real();
};

// The `_for_good` faults start at call N and never end. Syncs are counted and not done, to keep the sweeps fast.
class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(Fault fault = Fault::none, int64_t nth = 0) : fault_(fault), nth_(nth) {}

  int64_t calls() const { return calls_; }
  bool fired() const { return calls_ > nth_; }

  int open(const std::string& path, OpenMode mode) override { return failing() ? -code() : real_.open(path, mode); }
  int64_t size(int fd) override { return failing() ? -code() : real_.size(fd); }
  int64_t read(int fd, std::span<std::byte> into, uint64_t offset) override {
    if (!failing()) return real_.read(fd, into, offset);
    if (fault_ == Fault::short_write) return real_.read(fd, into.first((into.size() + 1) / 2), offset);
    return -code();
  }
  int64_t write(int fd, Bytes bytes) override {
    if (!failing()) return real_.write(fd, bytes);
    // A disk that fills up, or breaks, has often taken a part.
    const int64_t written = real_.write(fd, bytes.first((bytes.size() + 1) / 2));
    return fault_ == Fault::short_write ? written : fault_ == Fault::eintr && written > 0 ? written : -code();
  }
  int64_t write_at(int fd, Bytes bytes, uint64_t offset) override {
    if (!failing()) return real_.write_at(fd, bytes, offset);
    const int64_t written = real_.write_at(fd, bytes.first((bytes.size() + 1) / 2), offset);
    return fault_ == Fault::short_write ? written : -code();
  }
  int allocate(int fd, uint64_t bytes) override { return failing() ? -code() : real_.allocate(fd, bytes); }
  int fsync(int) override { return failing() ? -code() : 0; }
  int close(int fd) override {
    const bool fails = failing();
    const int result = real_.close(fd);  // the descriptor is gone either way
    return fails ? -code() : result;
  }
  int rename(const std::string& from, const std::string& to) override {
    return failing() ? -code() : real_.rename(from, to);
  }
  int unlink(const std::string& path) override { return failing() ? -code() : real_.unlink(path); }
  int rmdir(const std::string& path) override { return failing() ? -code() : real_.rmdir(path); }
  int mkdir(const std::string& path) override { return failing() ? -code() : real_.mkdir(path); }
  int list(const std::string& folder, std::vector<std::string>& names) override {
    return failing() ? -code() : real_.list(folder, names);
  }
  int64_t free_bytes(const std::string& folder) override {
    return failing() ? -code() : free_bytes_ >= 0 ? free_bytes_ : real_.free_bytes(folder);
  }
  int lock(int fd) override { return failing() ? -code() : real_.lock(fd); }
  void pretend_free_bytes(int64_t bytes) { free_bytes_ = bytes; }

 private:
  bool failing() {
    const int64_t call = calls_++;
    if (fault_ == Fault::none) return false;
    return call == nth_ || (call > nth_ && (fault_ == Fault::eio_for_good || fault_ == Fault::enospc_for_good));
  }
  int code() const {
    switch (fault_) {
      case Fault::eio:
      case Fault::eio_for_good: return EIO;
      case Fault::enospc:
      case Fault::enospc_for_good: return ENOSPC;
      default: return EINTR;
    }
  }

  FileSystem& real_ = FileSystem::real();
  Fault fault_;
  int64_t nth_;
  std::atomic<int64_t> calls_{0};
  int64_t free_bytes_ = -1;
};

}  // namespace weft
