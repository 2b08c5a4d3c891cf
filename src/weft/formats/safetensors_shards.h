// Safetensors in shards: the files of a model folder as one list of tensors, read after every check, and written.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/formats/safetensors.h"

namespace weft {

// How Hugging Face names the files of a folder.
constexpr std::string_view kSafetensorsName = "model.safetensors";
constexpr std::string_view kSafetensorsIndexName = "model.safetensors.index.json";

// The open files of a model. Opening checks, beside each file itself, that the index names only files of its own
// folder, that every tensor of it is in the file it says, and that no tensor is in two files. Tensors that the index
// does not list are not offered. Throws Error naming the file, the tensor and what is wrong.
class SafetensorsShards {
 public:
  // `path` is a .safetensors file, an index, or a folder with one of them under Hugging Face's name.
  explicit SafetensorsShards(const std::string& path, FileSystem& fs = FileSystem::real());

  const std::string& path() const { return path_; }  // of the index, or of the only file
  const std::deque<SafetensorsFile>& files() const { return files_; }
  std::vector<const SafetensorsEntry*> entries() const;  // file by file, in the order of their bytes

  const SafetensorsEntry* find(const std::string& name) const;
  const SafetensorsEntry& at(const std::string& name) const;  // Error naming the nearest when absent
  Bytes bytes(const SafetensorsEntry& entry) const;           // valid while this is open

 private:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  void open_index(FileSystem& fs);

  std::string path_;
  std::deque<SafetensorsFile> files_;  // stay where they are
  std::unordered_map<std::string, Place> places_;
};

// Where the tensors of a list go, in its order: the index of the shard of each. A shard has at most `max_shard_bytes`
// of data, or one tensor.
std::vector<size_t> assign_shards(const std::vector<SafetensorsInfo>& tensors, uint64_t max_shard_bytes);

// Writes the data of all tensors in the order given, in pieces of any size, into as many files as are needed; more
// than one get an index. Each file appears under its name when it is whole and durable, the index last. The folder
// must be there, and none of the files.
class SafetensorsShardsWriter {
 public:
  static constexpr uint64_t kDefaultShardBytes = 5'000'000'000;  // what Hugging Face's tools choose

  SafetensorsShardsWriter(FileSystem& fs, std::string folder, std::vector<SafetensorsInfo> tensors,
                          std::map<std::string, std::string> metadata = {{"format", "pt"}},
                          uint64_t max_shard_bytes = kDefaultShardBytes);
  void write(Bytes data);
  void finish();

 private:
  struct Shard {
    std::string name;
    std::vector<SafetensorsInfo> tensors;
    uint64_t bytes = 0;
  };
  void refuse_other_model() const;
  void open_shard();
  void close_shard();
  std::string index_text() const;

  FileSystem& fs_;
  std::string folder_;
  std::map<std::string, std::string> metadata_;
  std::vector<Shard> shards_;
  size_t current_ = 0;  // the shard being written
  std::optional<SafetensorsWriter> writer_;
  uint64_t left_ = 0;  // bytes of the current shard that are still to come
};

}  // namespace weft
