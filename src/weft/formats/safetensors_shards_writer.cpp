// Writing safetensors in shards: each under a temporary name until it is whole, then the index.
#include <nlohmann/json.hpp>

#include <set>

#include "weft/base/json.h"
#include "weft/formats/safetensors_shards.h"

namespace weft {

std::vector<size_t> assign_shards(const std::vector<SafetensorsInfo>& tensors, uint64_t max_shard_bytes) {
  std::vector<size_t> shards;
  uint64_t bytes = 0;
  size_t shard = 0;
  for (const SafetensorsInfo& tensor : tensors) {
    const bool fits = bytes + tensor.bytes() <= max_shard_bytes;
    if (!fits && bytes > 0 && tensor.bytes() > 0) ++shard, bytes = 0;
    bytes += tensor.bytes();
    shards.push_back(shard);
  }
  return shards;
}

SafetensorsShardsWriter::SafetensorsShardsWriter(FileSystem& fs, std::string folder,
                                                 std::vector<SafetensorsInfo> tensors,
                                                 std::map<std::string, std::string> metadata,
                                                 uint64_t max_shard_bytes)
    : fs_(fs), folder_(std::move(folder)), metadata_(std::move(metadata)) {
  const std::vector<size_t> assigned = assign_shards(tensors, max_shard_bytes);
  shards_.resize(assigned.empty() ? 1 : assigned.back() + 1);
  std::set<std::string_view> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check(names.insert(tensors[i].name).second, "two tensors of one model are named '{}'", tensors[i].name);
    Shard& shard = shards_[assigned[i]];
    shard.bytes += tensors[i].bytes();
    shard.tensors.push_back(tensors[i]);
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].name = shards_.size() == 1 ? std::string(kSafetensorsNames.single)
                                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards_.size());
  }
  refuse_other_model();
  open_shard();
}

// Files of another model would be taken for parts of this one, or the other way round.
void SafetensorsShardsWriter::refuse_other_model() const {
  std::vector<std::string> names{std::string(kSafetensorsNames.single), std::string(kSafetensorsNames.index)};
  for (const Shard& shard : shards_) names.push_back(shard.name);
  for (const std::string& name : names) {
    const std::string path = join_path(folder_, name);
    if (exists(fs_, path)) throw Error("{} is there already: choose another folder, or remove it", path);
  }
}

void SafetensorsShardsWriter::open_shard() {
  const Shard& shard = shards_[current_];
  const std::string path = join_path(folder_, shard.name) + ".tmp";
  make_way(fs_, path);
  writer_.emplace(fs_, path, shard.tensors, metadata_);
  left_ = shard.bytes;
}

void SafetensorsShardsWriter::close_shard() {
  writer_->finish();
  writer_.reset();
  const std::string path = join_path(folder_, shards_[current_].name);
  rename_path(fs_, path + ".tmp", path);
}

void SafetensorsShardsWriter::write(Bytes data) {
  while (!data.empty()) {
    if (left_ == 0) {
      check(current_ + 1 < shards_.size(), "{}: {} bytes more than its tensors have", folder_, data.size());
      close_shard();
      ++current_;
      open_shard();
    }
    const size_t now = size_t(std::min<uint64_t>(left_, data.size()));
    writer_->write(data.first(now));
    left_ -= now;
    data = data.subspan(now);
  }
}

void SafetensorsShardsWriter::finish() {
  check(current_ + 1 == shards_.size(), "{}: whole files of its tensors are missing", folder_);
  close_shard();
  if (shards_.size() > 1) {
    write_file_atomically(fs_, join_path(folder_, kSafetensorsNames.index), index_text());
  } else {
    sync_folder(fs_, folder_);
  }
}

std::string SafetensorsShardsWriter::index_text() const {
  uint64_t total = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (const Shard& shard : shards_) {
    total += shard.bytes;
    for (const SafetensorsInfo& tensor : shard.tensors) weight_map[tensor.name] = shard.name;
  }
  nlohmann::json index;
  index["metadata"]["total_size"] = total;
  index["weight_map"] = std::move(weight_map);
  return to_json_text(index, 2) + "\n";
}

}  // namespace weft
