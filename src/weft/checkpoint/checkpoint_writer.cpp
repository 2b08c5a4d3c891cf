// The commit protocol of checkpoints; docs/ARCHITECTURE.md explains the order of its steps.
#include <cstring>

#include "weft/checkpoint/checkpoint_store.h"

namespace weft {
namespace {

constexpr uint64_t kPieceBytes = uint64_t(16) << 20;  // a digest at least every so many bytes
constexpr size_t kBlockBytes = size_t(256) << 10;     // hashed, then written, while it is in cache

// One piece, or several of kPieceBytes.
void plan_pieces(std::string_view name, uint64_t bytes, std::vector<ManifestPiece>& plan) {
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    plan.push_back({.name = std::string(name), .bytes = std::min(kPieceBytes, bytes - at)});
  }
}

}  // namespace

CheckpointTensorFile::CheckpointTensorFile(FileSystem& fs, const std::string& path, std::vector<ManifestPiece> plan)
    : file_(fs, path), done_{.name = file_name_of(path), .pieces = std::move(plan)} {
  file_.reserve(done_.bytes());
  plan_.swap(done_.pieces);
  std::reverse(plan_.begin(), plan_.end());
  left_ = plan_.empty() ? 0 : plan_.back().bytes;
}

// The digest is taken from memory, so that what the disk was given can be told from what it keeps.
void CheckpointTensorFile::write(Bytes data) {
  while (!data.empty()) {
    check(!plan_.empty(), "{}: more bytes than its tensors have", file_.path());
    const Bytes block = data.first(size_t(std::min<uint64_t>({data.size(), left_, kBlockBytes})));
    digester_.update(block);
    file_.write(block);
    data = data.subspan(block.size());
    left_ -= block.size();
    if (left_ > 0) continue;
    done_.pieces.push_back(std::move(plan_.back()));
    done_.pieces.back().digest = digester_.finish();
    plan_.pop_back();
    left_ = plan_.empty() ? 0 : plan_.back().bytes;
  }
}

ManifestFile CheckpointTensorFile::finish() {
  check(plan_.empty(), "{}: bytes of tensor '{}' are missing", file_.path(), plan_.empty() ? "" : plan_.back().name);
  file_.sync();
  file_.close();
  return std::move(done_);
}

CheckpointWriter::CheckpointWriter(CheckpointStore& store, int64_t step, bool owns_folder)
    : store_(&store), step_(step), owns_folder_(owns_folder), folder_(store.path_of(step) + ".partial") {}

CheckpointWriter::CheckpointWriter(CheckpointWriter&& other) noexcept
    : store_(other.store_),
      step_(other.step_),
      owns_folder_(std::exchange(other.owns_folder_, false)),
      folder_(std::move(other.folder_)),
      files_(std::move(other.files_)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!owns_folder_) return;
  try {
    remove_folder(store_->fs_, folder_);
  } catch (const std::exception& e) {
    store_->say(fmt::format("an unfinished checkpoint stays until the next save: {}", e.what()));
  }
}

std::string CheckpointWriter::path_of(const std::string& name) {
  check(is_plain_file_name(name), "'{}' is not a name for a file of a checkpoint", name);
  return join_path(folder_, name);
}

void CheckpointWriter::record(ManifestFile file) {
  for (const ManifestFile& other : files_) {
    check(other.name != file.name, "two files of checkpoint {} are named {}", folder_, file.name);
  }
  files_.push_back(std::move(file));
}

// A file that this rank has written.
void CheckpointWriter::record_own(ManifestFile file) {
  if (store_->options_.verify_after_write) {
    const std::vector<std::string> problems = problems_of(file, folder_, store_->fs_);
    if (!problems.empty()) refuse(problems.front());
  }
  record(std::move(file));
}

void CheckpointWriter::refuse(const std::string& problem) const {
  throw Error("checkpoint {} was not saved: what was read back is not what was written: {}", folder_, problem);
}

void CheckpointWriter::add_file(const std::string& name, Bytes content) {
  std::vector<ManifestPiece> plan;
  plan_pieces(kWholeFile, content.size(), plan);
  CheckpointTensorFile file(store_->fs_, path_of(name), std::move(plan));
  file.write(content);
  record_own(file.finish());
}

void CheckpointWriter::add_tensors(const std::string& name, const std::vector<SafetensorsInfo>& tensors,
                                   FunctionRef<void(CheckpointTensorFile&)> fill) {
  check(name.ends_with(".safetensors"), "tensors are saved in NAME.safetensors, not in {}", name);
  const std::string header = safetensors_header(tensors, {{"format", "weft"}});
  std::vector<ManifestPiece> plan;
  plan_pieces(kTensorHeader, header.size(), plan);
  for (const SafetensorsInfo& tensor : tensors) plan_pieces(tensor.name, tensor.bytes(), plan);
  CheckpointTensorFile file(store_->fs_, path_of(name), std::move(plan));
  file.write(bytes_of(header));
  fill(file);
  record_own(file.finish());
}

void CheckpointWriter::add_tensors(const std::string& name, std::span<const NamedTensor> tensors) {
  std::vector<SafetensorsInfo> infos;
  for (const auto& [tensor_name, tensor] : tensors) {
    check(tensor && tensor.device() == Device::cpu, "tensor '{}' must be on the CPU to be saved", tensor_name);
    infos.push_back({tensor_name, tensor.dtype(), tensor.shape()});
  }
  add_tensors(name, infos, [&](CheckpointTensorFile& file) {
    for (const NamedTensor& named : tensors) {
      file.write({static_cast<const std::byte*>(named.tensor.raw()), named.tensor.bytes()});
    }
  });
}

void CheckpointWriter::adopt(std::string_view records) {
  for (ManifestFile& file : parse_manifest_files(records, "another rank's list of files")) record(std::move(file));
}

// The partial folder takes the name of the finished one. A checkpoint of the same step steps aside first; until it is
// deleted the loader knows it under its other name, so that no instant is without it.
void CheckpointWriter::publish() {
  FileSystem& fs = store_->fs_;
  const std::string path = store_->path_of(step_), replaced = path + ".replaced";
  const bool replaces = exists(fs, path);
  if (replaces) {
    remove_folder(fs, replaced);
    rename_path(fs, path, replaced);
  }
  try {
    rename_path(fs, folder_, path);
  } catch (const Error&) {
    if (replaces) fs.rename(replaced, path);
    throw;
  }
  owns_folder_ = false;  // it is no longer partial
  sync_folder(fs, store_->folder_);
}

std::string CheckpointWriter::commit() {
  check(owns_folder_, "only the writer of begin() commits, and once");
  FileSystem& fs = store_->fs_;
  const std::string manifest = to_json_text(Manifest{.step = step_, .files = files_});
  const std::string path = join_path(folder_, kManifestName);
  OutputFile file(fs, path);
  file.reserve(manifest.size());
  file.write(weft::bytes_of(manifest));
  file.sync();
  file.close();
  sync_folder(fs, folder_);
  if (store_->options_.verify_after_write && read_file(path, manifest.size(), fs) != manifest)
    refuse(std::string(kManifestName));
  publish();
  store_->prune(step_);
  return store_->path_of(step_);
}

}  // namespace weft
