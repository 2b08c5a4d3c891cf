// CheckpointStore: the folder of a run's checkpoints; a save is all there or not at all, a load is verified.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/checkpoint/checkpoint.h"

namespace weft {

class CheckpointStore;

// The file of tensors that is being streamed into a checkpoint: their bytes in order, in pieces of any size.
class CheckpointTensorFile {
 public:
  void write(Bytes data);

 private:
  friend class CheckpointWriter;
  CheckpointTensorFile(FileSystem& fs, const std::string& path, std::vector<ManifestPiece> plan);
  ManifestFile finish();

  OutputFile file_;
  ManifestFile done_;
  std::vector<ManifestPiece> plan_;  // what is to come, first piece last
  uint64_t left_ = 0;                // of the piece under way
  Digester digester_;
};

// One checkpoint being written, in step-000500.partial. Destroyed without a successful commit(), begin's writer
// removes the folder. One thread uses it; other ranks have their own, from CheckpointStore::join. The store must
// outlive it.
class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointWriter&& other) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  ~CheckpointWriter();

  void add_file(const std::string& name, Bytes content);
  void add_file(const std::string& name, std::string_view content) { add_file(name, bytes_of(content)); }
  void add_state(const TrainingState& state) { add_file(std::string(kStateName), to_json_text(state)); }
  // "model.safetensors", or "model-RANK.safetensors" when several ranks write tensors of that group.
  void add_tensors(const std::string& name, std::span<const NamedTensor> tensors);
  // The same, when not all bytes are in memory at once: `fill` must write those of every tensor, in order.
  void add_tensors(const std::string& name, const std::vector<SafetensorsInfo>& tensors,
                   FunctionRef<void(CheckpointTensorFile&)> fill);

  // How other ranks' files reach the manifest: records() there, sent to rank 0, adopt() here. The files are durable.
  std::string records() const { return to_json_text(files_); }
  void adopt(std::string_view records);

  // Makes the checkpoint durable and visible, then removes those no longer kept. Returns its path. Only for begin's.
  std::string commit();

 private:
  friend class CheckpointStore;
  CheckpointWriter(CheckpointStore& store, int64_t step, bool owns_folder);
  void record(ManifestFile file);
  void record_own(ManifestFile file);
  [[noreturn]] void refuse(const std::string& problem) const;
  std::string path_of(const std::string& name);
  void publish();

  CheckpointStore* store_;
  int64_t step_;
  bool owns_folder_;
  std::string folder_;  // the partial one
  std::vector<ManifestFile> files_;
};

struct CheckpointOptions {
  int keep = 3;                                 // the newest so many; at least 1
  bool verify_after_write = true;               // read every file back once it is written
  std::function<void(const std::string&)> log;  // told of what was rejected, cleaned or could not be cleaned
};

struct RejectedCheckpoint {
  std::string path, reason;
};

struct FoundCheckpoint {
  std::optional<Checkpoint> checkpoint;      // none: the store is empty or nothing in it is valid
  std::vector<RejectedCheckpoint> rejected;  // newer than the one found
};

//   CheckpointStore store("runs/a/checkpoints", {.keep = 3});
//   CheckpointWriter writer = store.begin(step, CheckpointStore::bytes_of(weights) +
//   CheckpointStore::bytes_of(moments)); writer.add_tensors("model.safetensors", weights);
//   writer.add_tensors("optimizer.safetensors", moments);
//   writer.add_file("recipe.toml", recipe.to_text());
//   writer.add_state(state);
//   writer.commit();
//   ...
//   if (const auto found = store.newest_valid(); found.checkpoint) {
//     found.checkpoint->load(kModelGroup, weights);
//     found.checkpoint->load(kOptimizerGroup, moments);
//     state = found.checkpoint->state();
//   }
//
// Every failure to save is an Error naming file and reason, and leaves all earlier checkpoints as they were.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder, CheckpointOptions options = {}, FileSystem& fs = FileSystem::real());

  // Cleans what crashes have left, checks that `bytes_needed` fit, and makes the partial folder. A step that exists
  // already is replaced by commit().
  CheckpointWriter begin(int64_t step, uint64_t bytes_needed = 0);
  // For the other ranks, once rank 0's begin() has returned.
  CheckpointWriter join(int64_t step);

  // Opens the newest checkpoint of which every byte agrees with its digest; names all it had to reject on the way.
  FoundCheckpoint newest_valid() const;
  std::vector<std::string> list() const;  // paths, newest first, unverified
  std::string path_of(int64_t step) const;
  const std::string& folder() const { return folder_; }

  static uint64_t bytes_of(std::span<const NamedTensor> tensors);

 private:
  friend class CheckpointWriter;
  void say(const std::string& line) const;
  void clean(bool with_replaced);
  void prune(int64_t newest_step);

  std::string folder_;
  CheckpointOptions options_;
  FileSystem& fs_;
};

}  // namespace weft
