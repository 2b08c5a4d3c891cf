// Finding, cleaning and pruning the checkpoints of a folder.
#include "weft/checkpoint/checkpoint_store.h"

#include <charconv>

namespace weft {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kReplaced = ".replaced";
constexpr uint64_t kSpareBytes = 1 << 20;  // manifest, recipe, state and the file system's own

struct Name {
  int64_t step = 0;
  bool is_replaced = false;
  std::string text;
};

// "step-000500" or "step-000500.replaced".
std::optional<Name> parse_name(const std::string& text) {
  std::string_view rest = text;
  if (!rest.starts_with(kPrefix)) return {};
  rest.remove_prefix(kPrefix.size());
  Name name{.text = text};
  if (rest.ends_with(kReplaced)) {
    name.is_replaced = true;
    rest.remove_suffix(kReplaced.size());
  }
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), name.step);
  if (error != std::errc() || end != rest.data() + rest.size() || name.step < 0) return {};
  return name;
}

// Newest first; of two of one step the one that replaced the other.
std::vector<Name> names_in(FileSystem& fs, const std::string& folder) {
  std::vector<Name> names;
  if (!exists(fs, folder)) return names;
  for (const std::string& text : list_folder(fs, folder)) {
    if (auto name = parse_name(text)) names.push_back(std::move(*name));
  }
  std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) {
    return std::tie(b.step, a.is_replaced) < std::tie(a.step, b.is_replaced);
  });
  return names;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, CheckpointOptions options, FileSystem& fs)
    : folder_(std::move(folder)), options_(std::move(options)), fs_(fs) {
  check(options_.keep >= 1, "a checkpoint store keeps at least 1 checkpoint, not {}", options_.keep);
}

std::string CheckpointStore::path_of(int64_t step) const {
  return join_path(folder_, fmt::format("{}{:06}", kPrefix, step));
}

uint64_t CheckpointStore::bytes_of(std::span<const NamedTensor> tensors) {
  uint64_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += named.tensor.bytes();
  return bytes;
}

void CheckpointStore::say(const std::string& line) const {
  if (options_.log) options_.log(line);
}

CheckpointWriter CheckpointStore::begin(int64_t step, uint64_t bytes_needed) {
  check(step >= 0, "a checkpoint cannot be of step {}", step);
  make_folders(fs_, folder_);
  clean(false);
  require_free_space(fs_, folder_, bytes_needed + kSpareBytes, fmt::format("checkpoint step-{:06}", step));
  CheckpointWriter writer(*this, step, true);
  make_new_folder(fs_, writer.folder_);
  return writer;
}

CheckpointWriter CheckpointStore::join(int64_t step) { return {*this, step, false}; }

// Removes what no loader looks at; with_replaced also the checkpoints that newer ones of their step have replaced.
void CheckpointStore::clean(bool with_replaced) {
  try {
    for (const std::string& name : list_folder(fs_, folder_)) {
      const bool is_left = name.ends_with(".partial") || name.ends_with(".trash");
      const bool is_replaced = with_replaced && name.ends_with(kReplaced);
      if (!name.starts_with(kPrefix) || (!is_left && !is_replaced)) continue;
      remove_folder(fs_, join_path(folder_, name));
      if (is_left) say(fmt::format("removed {}, left by a save that did not finish", join_path(folder_, name)));
    }
  } catch (const Error& e) {
    say(fmt::format("could not clean {}: {}", folder_, e.what()));
  }
}

// Called when the checkpoint of `newest_step` is durable and verified. Those of later steps belong to a run that was
// wound back: they neither count nor go. A failure here costs space, not safety, so it is only told.
void CheckpointStore::prune(int64_t newest_step) {
  try {
    clean(true);
    int kept = 0;
    std::vector<std::string> trash;
    for (const Name& name : names_in(fs_, folder_)) {
      if (name.step > newest_step || name.is_replaced || ++kept <= options_.keep) continue;
      trash.push_back(join_path(folder_, name.text + ".trash"));
      rename_path(fs_, join_path(folder_, name.text), trash.back());
    }
    if (trash.empty()) return;
    sync_folder(fs_, folder_);  // they are gone by name before they lose a file
    for (const std::string& path : trash) remove_folder(fs_, path);
  } catch (const Error& e) {
    say(fmt::format("could not remove old checkpoints: {}", e.what()));
  }
}

std::vector<std::string> CheckpointStore::list() const {
  std::vector<std::string> paths;
  for (const Name& name : names_in(fs_, folder_)) paths.push_back(join_path(folder_, name.text));
  return paths;
}

FoundCheckpoint CheckpointStore::newest_valid() const {
  FoundCheckpoint found;
  for (const std::string& path : list()) {
    try {
      found.checkpoint = Checkpoint::open(path, Checkpoint::Check::all_bytes, fs_);
      break;
    } catch (const Error& e) {
      found.rejected.push_back({path, e.what()});
      say(fmt::format("rejected: {}", e.what()));
    }
  }
  return found;
}

}  // namespace weft
