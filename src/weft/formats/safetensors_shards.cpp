// The index of sharded safetensors, distrusted.
#include "weft/formats/safetensors_shards.h"

#include <map>

#include "weft/base/excerpt.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

constexpr size_t kMaxShards = 10'000;
constexpr JsonLimits kIndexLimits{.max_bytes = 100'000'000, .max_depth = 8};

// The file to open for what the user named.
std::string resolved(const std::string& path, FileSystem& fs) {
  if (path.ends_with(".safetensors") || path.ends_with(".json")) return path;
  for (const std::string_view name : {kSafetensorsIndexName, kSafetensorsName}) {
    if (exists(fs, join_path(path, name))) return join_path(path, name);
  }
  throw Error("{} has neither {} nor {}: name the folder of a model or one of its safetensors files", path,
              kSafetensorsName, kSafetensorsIndexName);
}

// A shard lies beside its index: a name that is also a path would let an index open any file of the machine.
void check_shard_name(const std::string& index, const std::string& name) {
  const bool is_plain = name.find('/') == name.npos && name.find('\\') == name.npos && name.find('\0') == name.npos;
  if (!is_plain || !name.ends_with(".safetensors")) {
    throw Error("{}: '{}' is not the name of a .safetensors file in the same folder", index, excerpt(name));
  }
}

// Tensors by the shard they are in.
std::map<std::string, std::vector<std::string>> read_weight_map(const std::string& path, FileSystem& fs) {
  const JsonDocument document = JsonDocument::parse(read_file(path, kIndexLimits.max_bytes, fs), path, kIndexLimits);
  const JsonView weight_map = document.root().at("weight_map");
  std::map<std::string, std::vector<std::string>> shards;
  for (const std::string& tensor : weight_map.keys()) {
    const std::string name = weight_map.at(tensor).string();
    auto& tensors = shards[name];
    if (tensors.empty()) check_shard_name(path, name);
    if (shards.size() > kMaxShards) throw Error("{} names more than {} files", path, kMaxShards);
    tensors.push_back(tensor);
  }
  return shards;
}

}  // namespace

SafetensorsShards::SafetensorsShards(const std::string& path, FileSystem& fs) : path_(resolved(path, fs)) {
  if (path_.ends_with(".json")) {
    open_index(fs);
  } else {
    const SafetensorsFile& file = files_.emplace_back(path_, fs);
    for (const SafetensorsEntry& entry : file.entries()) places_[entry.name] = {&file, &entry};
  }
}

void SafetensorsShards::open_index(FileSystem& fs) {
  std::unordered_map<std::string, const SafetensorsFile*> seen;
  for (const auto& [name, tensors] : read_weight_map(path_, fs)) {
    const std::string shard = join_path(parent_of(path_), name);
    if (!exists(fs, shard)) {
      throw Error("{} names {}, which is not there: download or copy the model again", path_, excerpt(name));
    }
    const SafetensorsFile& file = files_.emplace_back(shard, fs);
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto [other, is_new] = seen.emplace(entry.name, &file);
      if (is_new) continue;
      throw Error("tensor '{}' is in {} and in {}: a model has each tensor once", excerpt(entry.name),
                  other->second->path(), file.path());
    }
    for (const std::string& tensor : tensors) {
      const SafetensorsEntry* entry = file.find(tensor);
      if (!entry) throw Error("{} has no tensor '{}', which {} says it has", file.path(), excerpt(tensor), path_);
      places_[tensor] = {&file, entry};
    }
  }
}

std::vector<const SafetensorsEntry*> SafetensorsShards::entries() const {
  std::vector<const SafetensorsEntry*> entries;
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (places_.contains(entry.name)) entries.push_back(&entry);
    }
  }
  return entries;
}

const SafetensorsEntry* SafetensorsShards::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.entry;
}

const SafetensorsEntry& SafetensorsShards::at(const std::string& name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const auto& [known, place] : places_) names.push_back(known);
  std::sort(names.begin(), names.end());
  throw Error("{} has no tensor '{}'{}", path_, name, did_you_mean(name, names));
}

Bytes SafetensorsShards::bytes(const SafetensorsEntry& entry) const {
  return places_.at(entry.name).file->bytes(entry);
}

}  // namespace weft
