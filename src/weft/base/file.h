// Files: the one seam through which weft touches the file system, so that tests can make any call of it fail.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/bytes.h"
#include "weft/base/error.h"

namespace weft {

// create: for writing; scratch: for both, past the page cache where that can be done. Neither may exist yet. lock:
// for both, and made where it does not exist.
enum class OpenMode { read, create, folder, scratch, lock };

// The system's calls as they are: each gives a value >= 0, or -errno. Implementations may be used by many threads.
// Callers use OutputFile, MappedFile and the functions below, which retry, check and say what went wrong.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int open(const std::string& path, OpenMode mode) = 0;
  virtual int64_t size(int fd) = 0;  // -EISDIR for a folder, -ESPIPE for what else is no regular file
  virtual int64_t read(int fd, std::span<std::byte> into, uint64_t offset) = 0;
  virtual int64_t write(int fd, Bytes bytes) = 0;
  virtual int64_t write_at(int fd, Bytes bytes, uint64_t offset) = 0;
  virtual int allocate(int fd, uint64_t bytes) = 0;  // reserves space; -EOPNOTSUPP where that cannot be done
  virtual int fsync(int fd) = 0;
  virtual int close(int fd) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int unlink(const std::string& path) = 0;  // a file
  virtual int rmdir(const std::string& path) = 0;   // an empty folder
  virtual int mkdir(const std::string& path) = 0;
  virtual int list(const std::string& folder, std::vector<std::string>& names) = 0;
  virtual int64_t free_bytes(const std::string& folder) = 0;
  // For whoever opened it, until it is closed, which death does too; -EWOULDBLOCK when somebody else has it.
  virtual int lock(int fd) = 0;

  static FileSystem& real();
};

// A system call failed; `code` is its errno.
class FileError : public Error {
 public:
  FileError(std::string message, int error_code) : Error(std::move(message)), code(error_code) {}
  int code;
};

// A new file being written. Without close() it is closed in the destructor, and nothing is promised about its
// content.
class OutputFile {
 public:
  OutputFile(FileSystem& fs, std::string path);  // the file must not exist yet
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  void reserve(uint64_t bytes);  // fails now rather than later when the disk cannot hold them
  void write(Bytes bytes);
  void sync();  // the content survives a power cut; so does the name after sync_folder
  void close();
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  FileSystem& fs_;
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;      // written so far
  uint64_t expected_ = 0;  // as reserved
};

// An open file read at any place. A read error is an Error here, where through a mapping it would be a SIGBUS.
class InputFile {
 public:
  InputFile(FileSystem& fs, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const { return size_; }
  void read(std::span<std::byte> into, uint64_t offset) const;  // all of it, or Error
  int fd() const { return fd_; }

 private:
  FileSystem& fs_;
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A file for what does not fit into memory. It loses its name as soon as it is open, so that nothing is left of it
// however the program ends. What is read and written begins and ends at multiples of kBlock, in memory too.
class ScratchFile {
 public:
  static constexpr uint64_t kBlock = 4096;
  ScratchFile(FileSystem& fs, std::string path);  // a file of this name is replaced
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void reserve(uint64_t bytes);  // in all; fails now rather than later when the disk cannot hold them
  void write(Bytes bytes, uint64_t offset);
  void read(std::span<std::byte> into, uint64_t offset) const;
  const std::string& path() const { return path_; }

 private:
  FileSystem& fs_;
  std::string path_;
  int fd_ = -1;
};

// A file that one holder at a time has, until this is destroyed or its process dies, however it does. The file stays
// where it is and keeps the name of its last holder. Where the file system has no locks, everybody has it.
class LockFile {
 public:
  LockFile(FileSystem& fs, const std::string& path);
  ~LockFile();
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&&) = delete;

  // Who has it instead, as in "process 12 on node1"; empty: nobody else.
  const std::string& holder() const { return holder_; }

 private:
  FileSystem& fs_;
  int fd_ = -1;
  std::string holder_;
};

// A whole file as read-only memory. The file must not shrink while it is mapped (that is a SIGBUS): weft never
// rewrites a file in place, so only another program could do that.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path, FileSystem& fs = FileSystem::real());
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  Bytes bytes() const { return {data_, size_}; }
  // Throws Error naming the file, `what` and the range when any byte lies outside.
  Bytes range(uint64_t offset, uint64_t size, std::string_view what) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Of a mapped file: takes these bytes, which nobody reads soon, out of the process's resident set.
void forget_mapped(Bytes bytes);

// The whole file; Error when it is longer than `max_bytes`.
std::string read_file(const std::string& path, uint64_t max_bytes, FileSystem& fs = FileSystem::real());

// The same of what may be a pipe, a terminal or a device, such as /dev/stdin: waits until it ends.
std::string read_to_end(const std::string& path, uint64_t max_bytes);

// At every instant, also across a power cut, `path` holds either what it held or all of `content`.
void write_file_atomically(FileSystem& fs, const std::string& path, Bytes content);
inline void write_file_atomically(FileSystem& fs, const std::string& path, std::string_view content) {
  write_file_atomically(fs, path, bytes_of(content));
}

bool exists(FileSystem& fs, const std::string& path);
void make_folders(FileSystem& fs, const std::string& path);     // and its parents; fine when they exist
void make_new_folder(FileSystem& fs, const std::string& path);  // Error when it exists
void sync_folder(FileSystem& fs,
                 const std::string& path);  // names made, renamed and removed in it survive a power cut
void rename_path(FileSystem& fs, const std::string& from, const std::string& to);
void remove_file(FileSystem& fs, const std::string& path);
void make_way(FileSystem& fs, const std::string& path);       // for a file to be written: what a crash left goes
void remove_folder(FileSystem& fs, const std::string& path);  // with what is in it; fine when it does not exist
std::vector<std::string> list_folder(FileSystem& fs, const std::string& path);  // sorted, without "." and ".."
// Throws Error naming the folder, the bytes needed and those available, when `bytes` do not fit.
void require_free_space(FileSystem& fs, const std::string& folder, uint64_t bytes, std::string_view what);

std::string join_path(std::string_view folder, std::string_view name);
std::string parent_of(std::string_view path);     // "." when there is none
std::string file_name_of(std::string_view path);  // after the last '/'
std::string human_bytes(uint64_t bytes);          // "1.50 GiB"

}  // namespace weft
