// Shards: the files of a model folder as one list of tensors, opened after every check of their index.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/excerpt.h"
#include "weft/base/file.h"
#include "weft/base/nearest.h"

namespace weft {

// How the files of a format are called in a folder.
struct ShardNames {
  std::string_view single;  // "model.safetensors"
  std::string_view index;   // "model.safetensors.index.json"
  std::string_view ending;  // ".safetensors"
};

// The file to open for what the user named: a file itself, an index, or a folder with one of them.
std::string resolve_shards(const std::string& path, const ShardNames& names, FileSystem& fs);

// The tensors of each file that an index names. Throws Error unless all are files of the index's own folder, with the
// format's ending: a name that is also a path would let an index open any file of the machine.
std::map<std::string, std::vector<std::string>> read_shard_index(const std::string& path, const ShardNames& names,
                                                                 FileSystem& fs);

// Open files of a format: File has path(), entries(), find(name) and Entry with a name. Opening checks that every
// tensor of the index is in the file it says and that no tensor is in two files; those that the index does not list
// are not offered. Throws Error naming the file, the tensor and what is wrong.
template <class File>
class Shards {
 public:
  using Entry = typename File::Entry;

  Shards(const std::string& path, const ShardNames& names, FileSystem& fs) : path_(resolve_shards(path, names, fs)) {
    if (path_.ends_with(".json")) {
      open_index(names, fs);
    } else {
      const File& file = files_.emplace_back(path_, fs);
      for (const Entry& entry : file.entries()) places_[entry.name] = {&file, &entry};
    }
  }

  const std::string& path() const { return path_; }  // of the index, or of the only file
  const std::deque<File>& files() const { return files_; }

  // File by file, in the order of each.
  std::vector<const Entry*> entries() const {
    std::vector<const Entry*> entries;
    for (const File& file : files_) {
      for (const Entry& entry : file.entries()) {
        if (places_.contains(entry.name)) entries.push_back(&entry);
      }
    }
    return entries;
  }

  const Entry* find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : found->second.entry;
  }
  // Error naming the nearest when absent.
  const Entry& at(const std::string& name) const {
    if (const Entry* entry = find(name)) return *entry;
    std::vector<std::string> names;
    for (const auto& [known, place] : places_) names.push_back(known);
    std::sort(names.begin(), names.end());
    throw Error("{} has no tensor '{}'{}", path_, name, did_you_mean(name, names));
  }
  const File& file_of(const Entry& entry) const { return *places_.at(entry.name).file; }

 private:
  struct Place {
    const File* file;
    const Entry* entry;
  };

  void open_index(const ShardNames& names, FileSystem& fs) {
    std::unordered_map<std::string, const File*> seen;
    for (const auto& [name, tensors] : read_shard_index(path_, names, fs)) {
      const std::string shard = join_path(parent_of(path_), name);
      if (!exists(fs, shard)) {
        throw Error("{} names {}, which is not there: download or copy the model again", path_, excerpt(name));
      }
      const File& file = files_.emplace_back(shard, fs);
      for (const Entry& entry : file.entries()) {
        const auto [other, is_new] = seen.emplace(entry.name, &file);
        if (is_new) continue;
        throw Error("tensor '{}' is in {} and in {}: a model has each tensor once", excerpt(entry.name),
                    other->second->path(), file.path());
      }
      for (const std::string& tensor : tensors) {
        const Entry* entry = file.find(tensor);
        if (!entry) throw Error("{} has no tensor '{}', which {} says it has", file.path(), excerpt(tensor), path_);
        places_[tensor] = {&file, entry};
      }
    }
  }

  std::string path_;
  std::deque<File> files_;  // stay where they are
  std::unordered_map<std::string, Place> places_;
};

}  // namespace weft
