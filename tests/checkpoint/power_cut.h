// A recorder of file operations, and the disks that a power cut after any of them may leave behind.
#pragma once
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/faulty_file_system.h"

namespace weft {

// Records what happens below `root`, which is taken to be durable. Syncs are recorded and not done.
class RecordingFileSystem final : public PassingFileSystem {
 public:
  enum class Kind { make_file, make_folder, write, rename, remove, sync };
  struct Op {
    Kind kind;
    int parent = -1;   // the folder whose names change
    int node = -1;     // the file or folder it is about
    std::string a, b;  // names in `parent`; for a write, `a` is the bytes
  };

  explicit RecordingFileSystem(std::string root) : root_(std::move(root)), nodes_{{root_, 0}} {}

  const std::vector<Op>& ops() const { return ops_; }
  int num_nodes() const { return next_; }

  int open(const std::string& path, OpenMode mode) override {
    const int fd = PassingFileSystem::open(path, mode);
    if (fd < 0) return fd;
    if (mode == OpenMode::create) make(Kind::make_file, path);
    if (nodes_.contains(path)) open_[fd] = nodes_.at(path);
    return fd;
  }
  int64_t write(int fd, Bytes bytes) override {
    const int64_t written = PassingFileSystem::write(fd, bytes);
    ops_.push_back({Kind::write, -1, open_.at(fd), std::string(text_of(bytes.first(size_t(written)))), ""});
    return written;
  }
  int fsync(int fd) override {
    if (open_.contains(fd)) ops_.push_back({Kind::sync, -1, open_.at(fd), "", ""});
    return 0;
  }
  int close(int fd) override {
    open_.erase(fd);
    return PassingFileSystem::close(fd);
  }
  int rename(const std::string& from, const std::string& to) override {
    const int result = PassingFileSystem::rename(from, to);
    if (result < 0) return result;
    ops_.push_back({Kind::rename, nodes_.at(parent_of(from)), nodes_.at(from), file_name_of(from), file_name_of(to)});
    std::map<std::string, int> moved;
    for (auto it = nodes_.begin(); it != nodes_.end();) {
      const bool is_inside = it->first == from || it->first.starts_with(from + "/");
      if (is_inside) moved[to + it->first.substr(from.size())] = it->second;
      it = is_inside ? nodes_.erase(it) : std::next(it);
    }
    nodes_.insert(moved.begin(), moved.end());
    return result;
  }
  int unlink(const std::string& path) override { return removed(PassingFileSystem::unlink(path), path); }
  int rmdir(const std::string& path) override { return removed(PassingFileSystem::rmdir(path), path); }
  int mkdir(const std::string& path) override {
    const int result = PassingFileSystem::mkdir(path);
    if (result >= 0) make(Kind::make_folder, path);
    return result;
  }

 private:
  void make(Kind kind, const std::string& path) {
    nodes_[path] = next_;
    ops_.push_back({kind, nodes_.at(parent_of(path)), next_++, file_name_of(path), ""});
  }
  int removed(int result, const std::string& path) {
    if (result < 0) return result;
    ops_.push_back({Kind::remove, nodes_.at(parent_of(path)), nodes_.at(path), file_name_of(path), ""});
    nodes_.erase(path);
    return result;
  }

  std::string root_;
  std::map<std::string, int> nodes_;  // by path now
  std::map<int, int> open_;           // descriptor to node
  std::vector<Op> ops_;
  int next_ = 1;
};

// A disk as it may be when the power fails after the first `num_ops` operations. What was synced is there. Of what
// was not: in each folder, on its own, the changes of names up to some point; of each write all, nothing, or any of
// its sectors of 512 bytes, the others zero or beyond the end.
class CrashedDisk {
 public:
  CrashedDisk(const RecordingFileSystem& recorded, size_t num_ops, std::mt19937& random)
      : ops_(std::span(recorded.ops()).first(num_ops)), random_(random), nodes_(size_t(recorded.num_nodes())) {
    std::map<int, size_t> synced;  // node to its last sync
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i].kind == Kind::sync) synced[ops_[i].node] = i;
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      const auto& op = ops_[i];
      if (op.kind == Kind::sync) continue;
      const auto last = synced.find(op.kind == Kind::write ? op.node : op.parent);
      const bool is_durable = last != synced.end() && i < last->second;
      if (op.kind == Kind::write) {
        write(nodes_[size_t(op.node)], op.a, is_durable);
      } else {
        change_names(op, is_durable);
      }
    }
  }

  // Makes the disk's files below `folder`.
  void put(const std::string& folder, int node = 0) const {
    for (const auto& [name, child] : nodes_[size_t(node)].names) {
      const std::string path = join_path(folder, name);
      if (nodes_[size_t(child)].is_folder) {
        make_new_folder(FileSystem::real(), path);
        put(path, child);
      } else {
        OutputFile file(FileSystem::real(), path);
        file.write(bytes_of(nodes_[size_t(child)].content));
      }
    }
  }

 private:
  using Kind = RecordingFileSystem::Kind;
  struct Node {
    bool is_folder = false;
    bool has_stopped = false;  // a change of its names was lost, and so are all later ones
    std::map<std::string, int> names;
    std::string content;
    size_t end = 0;  // of what was written, whether it survived or not
  };

  void change_names(const RecordingFileSystem::Op& op, bool is_durable) {
    Node& parent = nodes_[size_t(op.parent)];
    if (!is_durable && random_() % 4 == 0) parent.has_stopped = true;
    nodes_[size_t(op.node)].is_folder |= op.kind == Kind::make_folder;
    if (parent.has_stopped) return;
    if (op.kind == Kind::rename || op.kind == Kind::remove) parent.names.erase(op.a);
    if (op.kind == Kind::rename) parent.names[op.b] = op.node;
    if (op.kind == Kind::make_file || op.kind == Kind::make_folder) parent.names[op.a] = op.node;
  }

  void write(Node& node, const std::string& bytes, bool is_durable) {
    constexpr size_t kSector = 512;
    const size_t begin = std::exchange(node.end, node.end + bytes.size());
    const uint32_t fate = is_durable ? 0 : random_() % 3;           // all, nothing, some sectors
    if (fate != 1 || random_() % 2) node.content.resize(node.end);  // the size alone may survive
    for (size_t at = 0; at < bytes.size() && fate != 1;) {
      const size_t count = std::min(kSector - (begin + at) % kSector, bytes.size() - at);
      if (fate == 0 || random_() % 2) node.content.replace(begin + at, count, bytes, at, count);
      at += count;
    }
  }

  std::span<const RecordingFileSystem::Op> ops_;
  std::mt19937& random_;
  std::vector<Node> nodes_;
};

}  // namespace weft
