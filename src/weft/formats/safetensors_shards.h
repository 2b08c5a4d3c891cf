// Safetensors in shards: the files of a model folder as one list of tensors, read after every check, and written.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/formats/safetensors.h"
#include "weft/formats/shards.h"

namespace weft {

// How Hugging Face names the files of a folder.
constexpr ShardNames kSafetensorsNames{"model.safetensors", "model.safetensors.index.json", ".safetensors"};

class SafetensorsShards : public Shards<SafetensorsFile> {
 public:
  explicit SafetensorsShards(const std::string& path, FileSystem& fs = FileSystem::real())
      : Shards(path, kSafetensorsNames, fs) {}
  // Valid while this is open.
  Bytes bytes(const SafetensorsEntry& entry) const { return file_of(entry).bytes(entry); }
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
