// The checked operations on files: retries of interrupted calls, short writes, and messages.
#include "weft/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace weft {
namespace {

[[noreturn]] void fail(std::string_view action, std::string_view path, int code, uint64_t bytes = 0) {
  const std::string reason = std::generic_category().message(code);
  if (code == ENOSPC || code == EDQUOT) {
    throw FileError(fmt::format("cannot {} {}: {}; {} needed: free some space or choose another folder", action, path,
                                reason, bytes ? fmt::format("{} bytes ({})", bytes, human_bytes(bytes)) : "more"),
                    code);
  }
  throw FileError(fmt::format("cannot {} {}: {}", action, path, reason), code);
}

// Calls until it is not interrupted. A bound, so that a broken system cannot hang the program.
template <class Call>
auto retried(Call&& call) {
  constexpr int kMaxInterruptions = 1000;
  auto result = call();
  for (int i = 0; result == -EINTR && i < kMaxInterruptions; ++i) result = call();
  return result;
}

int open_or_fail(FileSystem& fs, const std::string& path, OpenMode mode) {
  const int fd = retried([&] { return fs.open(path, mode); });
  if (fd < 0) fail(mode == OpenMode::create ? "create" : "open", path, -fd);
  return fd;
}

// what: cannot be done while the file is there.
void unlink_or_fail(FileSystem& fs, const std::string& path, std::string_view what) {
  const int result = retried([&] { return fs.unlink(path); });
  if (result < 0 && result != -ENOENT) fail(what, path, -result);
}

std::string name_of_this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

// What the holder of a lock wrote; it may be about to do so.
std::string holder_named_in(FileSystem& fs, int fd) {
  std::array<std::byte, 300> bytes;
  const int64_t count = retried([&] { return fs.read(fd, bytes, 0); });
  std::string name;
  for (int64_t i = 0; i < count && bytes[size_t(i)] >= std::byte(' ') && bytes[size_t(i)] <= std::byte('~'); ++i)
    name += char(bytes[size_t(i)]);
  return name.empty() ? "a process that has not given its name" : name;
}

}  // namespace

OutputFile::OutputFile(FileSystem& fs, std::string path)
    : fs_(fs), path_(std::move(path)), fd_(open_or_fail(fs, path_, OpenMode::create)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) fs_.close(fd_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fs_(other.fs_),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      expected_(other.expected_) {}

void OutputFile::reserve(uint64_t bytes) {
  expected_ = bytes;
  if (bytes == 0) return;
  const int result = retried([&] { return fs_.allocate(fd_, bytes); });
  if (result < 0 && result != -EOPNOTSUPP && result != -ENOSYS && result != -EINVAL) {
    fail("reserve space for", path_, -result, bytes);
  }
}

void OutputFile::write(Bytes bytes) {
  while (!bytes.empty()) {
    const int64_t written = retried([&] { return fs_.write(fd_, bytes); });
    if (written <= 0) {
      fail("write", path_, written ? int(-written) : EIO,
           std::max<uint64_t>(expected_, size_ + bytes.size()) - size_);
    }
    size_ += uint64_t(written);
    bytes = bytes.subspan(size_t(written));
  }
}

void OutputFile::sync() {
  const int result = retried([&] { return fs_.fsync(fd_); });
  if (result < 0) fail("sync", path_, -result, size_);
}

void OutputFile::close() {
  const int result = fs_.close(std::exchange(fd_, -1));  // interrupted or not, Linux has closed it
  if (result < 0 && result != -EINTR) fail("close", path_, -result, size_);
}

InputFile::InputFile(FileSystem& fs, std::string path)
    : fs_(fs), path_(std::move(path)), fd_(open_or_fail(fs, path_, OpenMode::read)) {
  const int64_t size = retried([&] { return fs_.size(fd_); });
  if (size < 0) {
    fs_.close(fd_);
    if (size == -ESPIPE)
      throw FileError(
          fmt::format("cannot read {}: it is no regular file: name one that holds what this gives", path_), ESPIPE);
    fail("read", path_, int(-size));
  }
  size_ = uint64_t(size);
}

InputFile::~InputFile() { fs_.close(fd_); }

void InputFile::read(std::span<std::byte> into, uint64_t offset) const {
  while (!into.empty()) {
    const int64_t count = retried([&] { return fs_.read(fd_, into, offset); });
    if (count < 0) fail("read", path_, int(-count));
    if (count == 0)
      throw Error("cannot read {}: it ends at byte {}, {} more were expected", path_, offset, into.size());
    offset += uint64_t(count);
    into = into.subspan(size_t(count));
  }
}

LockFile::LockFile(FileSystem& fs, const std::string& path) : fs_(fs), fd_(open_or_fail(fs, path, OpenMode::lock)) {
  const int result = retried([&] { return fs_.lock(fd_); });
  if (result == -EWOULDBLOCK) {
    holder_ = holder_named_in(fs_, fd_);
    fs_.close(std::exchange(fd_, -1));
    return;
  }
  // Without locks (ENOLCK, EOPNOTSUPP, ENOSYS) the name is as useful. That it cannot be written costs a message its
  // name. A longer one of before ends behind the new one's line.
  const std::string line = name_of_this_process() + "\n";
  retried([&] { return fs_.write_at(fd_, bytes_of(line), 0); });
}

LockFile::~LockFile() {
  if (fd_ >= 0) fs_.close(fd_);
}

LockFile::LockFile(LockFile&& other) noexcept
    : fs_(other.fs_), fd_(std::exchange(other.fd_, -1)), holder_(std::move(other.holder_)) {}

ScratchFile::ScratchFile(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {
  make_way(fs_, path_);
  fd_ = open_or_fail(fs_, path_, OpenMode::scratch);
  const int removed = retried([&] { return fs_.unlink(path_); });
  if (removed >= 0) return;
  fs_.close(fd_);
  fail("remove", path_, -removed);
}

ScratchFile::~ScratchFile() { fs_.close(fd_); }

void ScratchFile::reserve(uint64_t bytes) {
  const int result = retried([&] { return fs_.allocate(fd_, bytes); });
  if (result < 0 && result != -EOPNOTSUPP && result != -ENOSYS && result != -EINVAL)
    fail("reserve space for", path_, -result, bytes);
}

namespace {

// Calls until all is done. What ends between two blocks is done again from the block on.
template <class Span, class Call>
void each_block(std::string_view action, const std::string& path, Span bytes, uint64_t offset, Call&& call) {
  constexpr int kMaxShort = 1000;
  for (int num_short = 0; !bytes.empty();) {
    const int64_t count = retried([&] { return call(bytes, offset); });
    if (count < 0) fail(action, path, int(-count), bytes.size());
    if (uint64_t(count) < bytes.size() && ++num_short > kMaxShort) fail(action, path, EIO);
    const uint64_t done = uint64_t(count) / ScratchFile::kBlock * ScratchFile::kBlock;
    offset += done;
    bytes = bytes.subspan(size_t(done));
  }
}

}  // namespace

void ScratchFile::write(Bytes bytes, uint64_t offset) {
  each_block("write", path_, bytes, offset, [&](Bytes b, uint64_t at) { return fs_.write_at(fd_, b, at); });
}

void ScratchFile::read(std::span<std::byte> into, uint64_t offset) const {
  each_block("read", path_, into, offset, [&](std::span<std::byte> b, uint64_t at) { return fs_.read(fd_, b, at); });
}

MappedFile::MappedFile(const std::string& path, FileSystem& fs) : path_(path) {
  const InputFile file(fs, path);
  size_ = size_t(file.size());
  if (size_ == 0) return;  // an empty range cannot be mapped
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) fail("map", path_, errno, size_);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Bytes MappedFile::range(uint64_t offset, uint64_t size, std::string_view what) const {
  const auto found = subrange(bytes(), offset, size);
  if (!found) {
    throw Error("{}: {} should be {} bytes from byte {}, but the file has {}: it is damaged or was cut short", path_,
                what, size, offset, size_);
  }
  return *found;
}

void forget_mapped(Bytes bytes) {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE)), address = uintptr_t(bytes.data());
  const uintptr_t first = (address + page - 1) / page * page, end = (address + bytes.size()) / page * page;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);  // NOLINT
}

std::string read_file(const std::string& path, uint64_t max_bytes, FileSystem& fs) {
  const InputFile file(fs, path);
  if (file.size() > max_bytes) {
    throw Error("{} has {}, more than the {} allowed for such a file", path, human_bytes(file.size()),
                human_bytes(max_bytes));
  }
  std::string content(size_t(file.size()), '\0');
  file.read(std::as_writable_bytes(std::span(content)), 0);
  return content;
}

std::string read_to_end(const std::string& path, uint64_t max_bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (!file) fail("open", path, errno);
  std::string content;
  std::array<char, 1 << 16> piece;
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), file.get())) {
    content.append(piece.data(), count);
    if (content.size() > max_bytes)
      throw Error("{} has more than the {} allowed for such a file", path, human_bytes(max_bytes));
  }
  if (std::ferror(file.get())) fail("read", path, errno);
  return content;
}

void write_file_atomically(FileSystem& fs, const std::string& path, Bytes content) {
  const std::string temporary = path + ".tmp";
  make_way(fs, temporary);
  try {
    OutputFile file(fs, temporary);
    file.reserve(content.size());
    file.write(content);
    file.sync();
    file.close();
    rename_path(fs, temporary, path);
  } catch (const Error&) {
    fs.unlink(temporary);
    throw;
  }
  sync_folder(fs, parent_of(path));
}

bool exists(FileSystem& fs, const std::string& path) {
  const int fd = retried([&] { return fs.open(path, OpenMode::read); });
  if (fd >= 0) fs.close(fd);
  if (fd < 0 && fd != -ENOENT && fd != -ENOTDIR) fail("open", path, -fd);
  return fd >= 0;
}

void make_folders(FileSystem& fs, const std::string& path) {
  const int result = retried([&] { return fs.mkdir(path); });
  if (result == -EEXIST) return;
  if (result == -ENOENT && parent_of(path) != path) {
    make_folders(fs, parent_of(path));
    const int again = retried([&] { return fs.mkdir(path); });
    if (again < 0 && again != -EEXIST) fail("make folder", path, -again);
  } else if (result < 0) {
    fail("make folder", path, -result);
  }
  sync_folder(fs, parent_of(path));
}

void make_new_folder(FileSystem& fs, const std::string& path) {
  const int result = retried([&] { return fs.mkdir(path); });
  if (result < 0) fail("make folder", path, -result);
}

void sync_folder(FileSystem& fs, const std::string& path) {
  const int fd = open_or_fail(fs, path, OpenMode::folder);
  const int result = retried([&] { return fs.fsync(fd); });
  fs.close(fd);
  if (result < 0 && result != -EINVAL) fail("sync folder", path, -result);  // EINVAL: it has no such thing
}

void rename_path(FileSystem& fs, const std::string& from, const std::string& to) {
  const int result = retried([&] { return fs.rename(from, to); });
  if (result < 0) fail(fmt::format("rename {} to", from), to, -result);
}

void remove_file(FileSystem& fs, const std::string& path) { unlink_or_fail(fs, path, "remove"); }

void make_way(FileSystem& fs, const std::string& path) { unlink_or_fail(fs, path, "write"); }

void remove_folder(FileSystem& fs, const std::string& path) {
  std::vector<std::string> names;
  const int listed = retried([&] { return names.clear(), fs.list(path, names); });
  if (listed == -ENOENT) return;
  if (listed < 0) fail("list", path, -listed);
  for (const std::string& name : names) {
    const std::string inner = join_path(path, name);
    const int removed = retried([&] { return fs.unlink(inner); });
    if (removed == -EISDIR || removed == -EPERM) {
      remove_folder(fs, inner);
    } else if (removed < 0 && removed != -ENOENT) {
      fail("remove", inner, -removed);
    }
  }
  const int result = retried([&] { return fs.rmdir(path); });
  if (result < 0 && result != -ENOENT) fail("remove folder", path, -result);
}

std::vector<std::string> list_folder(FileSystem& fs, const std::string& path) {
  std::vector<std::string> names;
  const int result = retried([&] { return names.clear(), fs.list(path, names); });
  if (result < 0) fail("list", path, -result);
  std::sort(names.begin(), names.end());
  return names;
}

void require_free_space(FileSystem& fs, const std::string& folder, uint64_t bytes, std::string_view what) {
  const int64_t available = retried([&] { return fs.free_bytes(folder); });
  if (available < 0) fail("ask for the free space of", folder, int(-available));
  if (uint64_t(available) >= bytes) return;
  throw FileError(
      fmt::format("{} needs {} bytes ({}) in {}, but only {} ({}) are free: free some space or choose another folder",
                  what, bytes, human_bytes(bytes), folder, available, human_bytes(uint64_t(available))),
      ENOSPC);
}

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty() || name.starts_with('/')) return std::string(name);
  return fmt::format("{}{}{}", folder, folder.ends_with('/') ? "" : "/", name);
}

std::string parent_of(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? path.substr(0, 1) : path.substr(0, slash));
}

std::string file_name_of(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));  // npos + 1 == 0
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = double(bytes);
  size_t unit = 0;
  for (; value >= 1024; ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace weft
