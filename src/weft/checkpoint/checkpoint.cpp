// Verifying and reading checkpoints.
#include "weft/checkpoint/checkpoint.h"

#include "weft/base/nearest.h"

namespace weft {
namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t(256) << 20;
constexpr uint64_t kMaxSmallFileBytes = uint64_t(64) << 20;
constexpr size_t kReadBytes = size_t(1) << 20;  // at a time: stays in cache between the copy and the digest
constexpr size_t kMaxProblemsPerFile = 20;
constexpr std::string_view kTensorSuffix = ".safetensors";

void verify_pieces(const InputFile& input, const ManifestFile& file, std::vector<std::string>& problems) {
  std::vector<std::byte> buffer(size_t(std::min<uint64_t>(kReadBytes, input.size())));
  Digester digester;
  uint64_t at = 0;
  size_t num_problems = 0;
  for (const ManifestPiece& piece : file.pieces) {
    const uint64_t begin = at, end = at + piece.bytes;
    while (at < end) {
      const auto chunk = std::span(buffer).first(size_t(std::min<uint64_t>(buffer.size(), end - at)));
      input.read(chunk, at);
      digester.update(chunk);
      at += chunk.size();
    }
    if (digester.finish() == piece.digest || ++num_problems > kMaxProblemsPerFile) continue;
    const bool is_tensor = piece.name != kWholeFile && piece.name != kTensorHeader;
    problems.push_back(fmt::format("{}: {} is damaged (bytes {} to {})", file.name,
                                   is_tensor ? fmt::format("tensor '{}'", piece.name) : piece.name, begin, end));
  }
  if (num_problems > kMaxProblemsPerFile) {
    problems.push_back(fmt::format("{}: {} damaged pieces in all", file.name, num_problems));
  }
}

void verify_file(FileSystem& fs, const std::string& folder, const ManifestFile& file, Checkpoint::Check check,
                 std::vector<std::string>& problems) {
  try {
    const InputFile input(fs, join_path(folder, file.name));
    if (input.size() != file.bytes()) {
      problems.push_back(
          fmt::format("{}: it has {} bytes, the manifest says {}", file.name, input.size(), file.bytes()));
    } else if (check == Checkpoint::Check::all_bytes) {
      verify_pieces(input, file, problems);
    }
  } catch (const Error& e) {
    problems.push_back(fmt::format("{}: {}", file.name, e.what()));
  }
}

CheckpointReport inspect(FileSystem& fs, const std::string& path, Checkpoint::Check check) {
  CheckpointReport report{.path = path};
  try {
    const std::string text = read_file(join_path(path, kManifestName), kMaxManifestBytes, fs);
    report.manifest = parse_manifest(text, std::string(kManifestName));
    report.digest = digest_of(bytes_of(text));
  } catch (const Error& e) {
    report.problems.emplace_back(e.what());
    return report;
  }
  for (const ManifestFile& file : report.manifest->files) verify_file(fs, path, file, check, report.problems);
  return report;
}

}  // namespace

std::vector<std::string> problems_of(const ManifestFile& file, const std::string& folder, FileSystem& fs) {
  std::vector<std::string> problems;
  verify_file(fs, folder, file, Checkpoint::Check::all_bytes, problems);
  return problems;
}

std::string CheckpointReport::to_text() const {
  std::string text = fmt::format("checkpoint {}\n", path);
  if (manifest) {
    text += fmt::format("step {}, manifest {}\n", manifest->step, digest.to_hex());
    for (const ManifestFile& file : manifest->files) {
      text += fmt::format("  {:<32} {:>14} bytes in {} pieces\n", file.name, file.bytes(), file.pieces.size());
    }
  }
  for (const std::string& problem : problems) text += fmt::format("  DAMAGED {}\n", problem);
  return text + (is_valid() ? "every byte agrees with its digest\n" : "this checkpoint cannot be used\n");
}

CheckpointReport verify_checkpoint(const std::string& path, FileSystem& fs) {
  return inspect(fs, path, Checkpoint::Check::all_bytes);
}

Checkpoint Checkpoint::open(const std::string& path, Check check, FileSystem& fs) {
  CheckpointReport report = inspect(fs, path, check);
  if (!report.is_valid()) {
    std::string text;
    for (const std::string& problem : report.problems) text += (text.empty() ? "" : "; ") + problem;
    throw Error("checkpoint {} cannot be used: {}", path, text);
  }
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  checkpoint.fs_ = &fs;
  checkpoint.manifest_ = std::move(*report.manifest);
  checkpoint.digest_ = report.digest;
  for (const ManifestFile& file : checkpoint.manifest_.files) {
    if (!file.name.ends_with(kTensorSuffix)) continue;
    checkpoint.tensor_files_.push_back(std::make_unique<SafetensorsFile>(join_path(path, file.name), fs));
  }
  return checkpoint;
}

std::string Checkpoint::read(std::string_view file_name) const {
  if (!manifest_.find(file_name)) throw Error("checkpoint {} has no file {}", path_, file_name);
  return read_file(join_path(path_, file_name), kMaxSmallFileBytes, *fs_);
}

TrainingState Checkpoint::state() const {
  return parse_training_state(read(kStateName), join_path(path_, kStateName));
}

std::vector<const SafetensorsFile*> Checkpoint::files_of(std::string_view group) const {
  std::vector<const SafetensorsFile*> files;
  for (const auto& file : tensor_files_) {
    const std::string name = file_name_of(file->path());
    const bool is_shard = name.starts_with(fmt::format("{}-", group));
    if (is_shard || name == fmt::format("{}{}", group, kTensorSuffix)) files.push_back(file.get());
  }
  return files;
}

std::vector<std::string> Checkpoint::names(std::string_view group) const {
  std::vector<std::string> names;
  for (const SafetensorsFile* file : files_of(group)) {
    for (const SafetensorsEntry& entry : file->entries()) names.push_back(entry.name);
  }
  return names;
}

std::optional<StoredTensor> Checkpoint::find(std::string_view group, const std::string& name) const {
  for (const SafetensorsFile* file : files_of(group)) {
    if (const SafetensorsEntry* entry = file->find(name))
      return {{entry->dtype(), entry->shape(), file->bytes(*entry)}};
  }
  return {};
}

void Checkpoint::load(std::string_view group, std::span<const NamedTensor> into, LoadOptions options) const {
  const std::vector<std::string> stored_names = names(group);
  size_t num_found = 0;
  for (const auto& [name, tensor] : into) {
    const auto stored = find(group, name);
    if (!stored) {
      if (options.allow_missing) continue;
      throw Error("checkpoint {} has no {} tensor '{}'{}", path_, group, name, did_you_mean(name, stored_names));
    }
    ++num_found;
    check(tensor && tensor.device() == Device::cpu, "tensor '{}' must be on the CPU to be loaded", name);
    if (stored->shape != tensor.shape()) {
      throw Error("checkpoint {}: {} tensor '{}' has shape {}, but the model expects {}", path_, group, name,
                  stored->shape, tensor.shape());
    }
    if (stored->dtype != tensor.dtype()) {
      throw Error("checkpoint {}: {} tensor '{}' is {}, but {} is expected", path_, group, name,
                  name_of(stored->dtype), name_of(tensor.dtype()));
    }
    if (!stored->bytes.empty()) std::memcpy(tensor.raw(), stored->bytes.data(), stored->bytes.size());
  }
  if (options.allow_unused || num_found == stored_names.size()) return;
  for (const std::string& stored : stored_names) {
    if (std::any_of(into.begin(), into.end(), [&](const NamedTensor& t) { return t.name == stored; })) continue;
    throw Error("checkpoint {} has {} {} tensors that the model does not, the first is '{}'", path_,
                stored_names.size() - num_found, group, stored);
  }
}

}  // namespace weft
