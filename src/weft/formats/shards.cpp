// The index of a model in shards, distrusted.
#include "weft/formats/shards.h"

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr size_t kMaxShards = 10'000;
constexpr JsonLimits kIndexLimits{.max_bytes = 100'000'000, .max_depth = 8};

}  // namespace

std::string resolve_shards(const std::string& path, const ShardNames& names, FileSystem& fs) {
  if (path.ends_with(names.ending) || path.ends_with(".json")) return path;
  for (const std::string_view name : {names.index, names.single}) {
    if (exists(fs, join_path(path, name))) return join_path(path, name);
  }
  throw Error("{} has neither {} nor {}: name the folder of a model or one of its {} files", path, names.single,
              names.index, names.ending);
}

std::map<std::string, std::vector<std::string>> read_shard_index(const std::string& path, const ShardNames& names,
                                                                 FileSystem& fs) {
  const JsonDocument document = JsonDocument::parse(read_file(path, kIndexLimits.max_bytes, fs), path, kIndexLimits);
  const JsonView weight_map = document.root().at("weight_map");
  std::map<std::string, std::vector<std::string>> shards;
  for (const std::string& tensor : weight_map.keys()) {
    const std::string name = weight_map.at(tensor).string();
    const bool is_plain = name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
    if (!is_plain || !name.ends_with(names.ending)) {
      throw Error("{}: '{}' is not the name of a {} file in the same folder", path, excerpt(name), names.ending);
    }
    shards[name].push_back(tensor);
    if (shards.size() > kMaxShards) throw Error("{} names more than {} files", path, kMaxShards);
  }
  return shards;
}

}  // namespace weft
