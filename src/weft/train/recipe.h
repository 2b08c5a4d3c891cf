// Recipe: everything a training run is told, as typed values; read from TOML and checked before anything is
// allocated.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/base/toml.h"
#include "weft/models/decoder.h"
#include "weft/models/model_config.h"
#include "weft/parallel/data/bucket.h"
#include "weft/parallel/mesh.h"
#include "weft/parallel/pipeline/schedule.h"
#include "weft/train/optimizer_config.h"
#include "weft/train/policy/policy_gradient.h"
#include "weft/train/preference.h"

namespace weft {

// fp8: as bf16, but that products of layers' weights round their operands to E4M3 (MatmulArgs::float8).
enum class Precision : uint8_t { fp32, bf16, fp16, fp8 };
// In what the gradients of layers' bulk (Param::is_bulk) are summed, over micro-batches and ranks.
enum class GradientType : uint8_t { fp32, bf16 };
enum class OnNotFinite : uint8_t { stop, skip };

struct DataConfig {
  std::string train, valid;
  double valid_fraction = 0.1;
  std::string tokenizer = "byte";
  bool documents = false;       // whether attention stops at the ends of documents
  std::string format = "auto";  // of train and valid; see DatasetOptions
  std::string chat_template;    // a file; empty: the model's own, or a plain one
  std::string cache_dir;
};

struct TrainConfig {
  int64_t steps = 0, seq_len = 0, global_batch = 0, micro_batch = 0, accumulation = 0;
  uint64_t seed = 1337;
  Precision precision = Precision::fp32;
  double first_loss_scale = 65536;  // of fp16; no key: a run finds what fits
  GradientType gradients = GradientType::fp32;
  int64_t eval_every = 0, eval_batches = 0;  // batches of global_batch; 0: the whole validation part
  OnNotFinite on_not_finite = OnNotFinite::stop;
  RecomputePolicy recompute;
};

enum class OffloadTo : uint8_t { none, host, disk };

// What a rank does not keep in its own memory while it is not used.
struct OffloadConfig {
  OffloadTo optimizer = OffloadTo::none;    // its states, and masters that are apart from values
  OffloadTo parameters = OffloadTo::none;   // with Zero::parameters: this rank's part
  OffloadTo activations = OffloadTo::none;  // the saved inputs of recomputed blocks
  std::string dir = "offload";              // for files
};

struct MeshConfig {
  MeshShape shape;
  Zero zero = Zero::none;
  bool reshard_after_forward = true;
  bool sequence_parallel = false;
  ContextMode cp_mode = ContextMode::ring;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  OffloadConfig offload;
  int virtual_stages = 1;        // per rank of a pipeline
  std::string layers_per_stage;  // "6,6,5,5"; empty: placed so that the slowest stage is as fast as can be
  Device device = Device::cpu;   // of every rank
  int64_t timeout_s = 30;        // how long a rank waits for others that show no sign of life
  int size() const { return shape.size(); }
};

struct CheckpointConfig {
  std::string dir;       // empty: none are written
  int64_t every = 0;     // 0: only at the end
  int64_t keep = 3;      // 0: all
  bool is_async = true;  // training goes on while the files are written
  std::string resume;    // "auto": the newest valid one, if any; "none"; or a checkpoint folder
};

struct LogConfig {
  std::string dir;
  bool tensorboard = true;
  std::vector<int64_t> trace_steps;  // [first, last]; empty: none
};

// What data.tokenizer says when the model's own is meant.
inline constexpr const char* kTokenizerOfModel = "model";

// Learning from what another model says of the same tokens.
struct DistillConfig {
  std::string teacher;     // a saved model with the same vocabulary; empty: none
  double alpha = 0.5;      // the teacher's share of the loss
  double temperature = 1;  // of both models' distributions
};

struct Recipe {
  ModelConfig model;       // complete but for the vocabulary, where the tokenizer decides it
  std::string model_path;  // the model that training starts from; empty: from initial values
  std::string lora_path;   // a PEFT folder: its adapters go on; empty: new ones, or the model's own
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  MeshConfig mesh;
  PreferenceConfig preference;
  PolicyConfig policy;  // [rl]
  DistillConfig distill;
  CheckpointConfig checkpoint;
  LogConfig log;
  std::string text;  // the recipe as resolved, TOML

  DType dtype() const;
};

// What `name`, of kGradientNames, says. Throws a UsageError that names `key` where products of that precision leave
// no such gradients.
GradientType gradient_type(std::string_view name, Precision precision, std::string_view key);

// The [mesh] section alone, and its mesh.recompute.
MeshConfig read_mesh(Toml& toml);
RecomputePolicy read_recompute(Toml& toml);

// Throws UsageError for an unknown key, a wrong type, a contradiction or an impossible shape.
Recipe read_recipe(Toml& toml);

// The saved model that stands whole beside the trained one and is not trained: distill.teacher, or rl.reward_model;
// empty where there is none.
inline const std::string& path_beside(const Recipe& recipe) {
  return recipe.distill.teacher.empty() ? recipe.policy.reward_model : recipe.distill.teacher;
}
std::optional<ModelConfig> beside_of(const Recipe& recipe);
// Whether there is the reference of rl.beta beside them, which is such as the trained model.
inline bool has_reference_beside(const Recipe& recipe) {
  return recipe.policy.beta > 0 && recipe.model.lora.rank == 0;
}
// Sets what only the tokenizer knows, and checks the model's shape as a whole.
void set_vocab(Recipe& recipe, int64_t tokenizer_vocab);

}  // namespace weft
