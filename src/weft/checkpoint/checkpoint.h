// Checkpoint: one verified folder of named tensors and state, open for reading.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/named_tensor.h"
#include "weft/checkpoint/training_state.h"
#include "weft/formats/safetensors.h"

namespace weft {

// The names every checkpoint of a training run has.
constexpr std::string_view kModelGroup = "model";          // fp32 weights: model.safetensors
constexpr std::string_view kOptimizerGroup = "optimizer";  // "STATE.NAME", as "m.NAME": optimizer.safetensors
constexpr std::string_view kStateName = "state.json";
constexpr std::string_view kRecipeName = "recipe.toml";
constexpr std::string_view kModelName = "model.json";               // the model's shape
constexpr std::string_view kTokenizerName = "tokenizer.weft.json";  // what its tokens mean

// Everything that verify() found wrong, and what it looked at.
struct CheckpointReport {
  std::string path;
  std::optional<Manifest> manifest;   // none when it cannot be read
  Digest digest;                      // of the manifest's text: equal digests, equal checkpoints
  std::vector<std::string> problems;  // each names the file and, inside it, the tensor and the bytes
  bool is_valid() const { return problems.empty(); }
  std::string to_text() const;  // for people: every file with its size, then the problems
};

// Reads every byte of the checkpoint and compares. Never throws because of what it finds.
CheckpointReport verify_checkpoint(const std::string& path, FileSystem& fs = FileSystem::real());

// What is wrong with one file of a checkpoint; empty when every byte agrees with its digest.
std::vector<std::string> problems_of(const ManifestFile& file, const std::string& folder, FileSystem& fs);

// A tensor as it lies in the file.
struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  Bytes bytes;
};

// What to do when the file and the list of tensors do not name the same ones. Shapes and dtypes must always agree.
struct LoadOptions {
  bool allow_missing = false;  // tensors of the list that the file lacks stay as they are
  bool allow_unused = false;   // tensors of the file that the list lacks are skipped
};

class Checkpoint {
 public:
  // Verifies all bytes unless told not to; then only the manifest, the sizes and the headers. When many ranks open
  // one checkpoint, one verifies and the others compare digest() with it.
  enum class Check { all_bytes, sizes };
  static Checkpoint open(const std::string& path, Check check = Check::all_bytes,
                         FileSystem& fs = FileSystem::real());

  const std::string& path() const { return path_; }
  int64_t step() const { return manifest_.step; }
  const Manifest& manifest() const { return manifest_; }
  const Digest& digest() const { return digest_; }  // of the manifest, and so of everything

  TrainingState state() const;
  std::string read(std::string_view file_name) const;  // a small file, as recipe.toml

  // A group is GROUP.safetensors, or all of GROUP-*.safetensors together, as ranks may have written one each.
  std::vector<std::string> names(std::string_view group) const;
  std::optional<StoredTensor> find(std::string_view group, const std::string& name) const;
  // Copies the tensors of the list, by name. Throws Error naming the tensor and both shapes or dtypes.
  void load(std::string_view group, std::span<const NamedTensor> into, LoadOptions options = {}) const;

 private:
  Checkpoint() = default;
  std::vector<const SafetensorsFile*> files_of(std::string_view group) const;

  std::string path_;
  FileSystem* fs_ = nullptr;
  Manifest manifest_;
  Digest digest_;
  std::vector<std::unique_ptr<SafetensorsFile>> tensor_files_;
};

}  // namespace weft
