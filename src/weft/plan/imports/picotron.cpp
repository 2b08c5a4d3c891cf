// picotron's JSON. Names: its template/base_config.json and train.py.
#include "weft/plan/imports/translation.h"

namespace weft::plan {
namespace picotron {
namespace {

constexpr Words kEngines = {{{"1f1b", "1f1b"}, {"afab", "gpipe"}}};
constexpr Words kPrecisions = {{{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}}};

void take_engine(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kEngines); }
void take_precision(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kPrecisions); }

void take_name(Translation& t, const ConfigEntry& entry, std::string_view) {
  const std::string name = t.text_of(entry);
  t.say(Fate::open, "nothing is downloaded: write model.path of its folder, or a preset");
  t.open("model.path", fmt::format("the folder of {}, or model.preset", name));
}
void take_tokens(Translation& t, const ConfigEntry& entry, std::string_view) {
  const double rows = t.number_or("training.micro_batch_size", 1) * t.number_or("distributed.dp_size", 1) *
                      t.number_or("training.gradient_accumulation_steps", 1);
  const double steps = t.number_of(entry) / std::max(rows * t.number_or("training.seq_length", 1), 1.0);
  const double most = t.number_or("training.total_train_steps", 1e15);
  if (steps >= most) return t.say(Fate::not_needed, "training.total_train_steps ends the run first");
  t.put("train.steps", whole_near(std::max(steps, 1.0)));
}
void take_steps(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.has(target)) return t.put(target, t.whole_of(entry));
  t.say(Fate::not_needed, "training.max_tokens ends the run first");
}
void take_load(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (entry.text.empty()) return t.say(Fate::same, "not set");
  t.say(Fate::no_counterpart, "picotron's checkpoints are not read: write model.path of a Hugging Face folder");
}

constexpr std::string_view kData = "data sets are not downloaded: write data.train";
constexpr Rule kRules[] = {
    whole("distributed.tp_size", "mesh.tp"),
    whole("distributed.cp_size", "mesh.cp"),
    whole("distributed.pp_size", "mesh.pp"),
    whole("distributed.dp_size", "mesh.dp"),
    taken("distributed.pp_engine", "mesh.schedule", take_engine),
    not_needed("distributed.backend", "threads, MPI or the device's library carry collectives"),
    not_needed("distributed.use_cpu", "weft runs on what the machine has"),
    taken("model.name", "model.path", take_name),
    whole("model.num_hidden_layers", "model.layers"),
    whole("model.num_attention_heads", "model.heads"),
    whole("model.num_key_value_heads", "model.kv_heads"),
    taken("model.dtype", "train.precision", take_precision),
    same("model.use_flash_attention", "attention never holds all scores"),
    same("model.use_fused_adam", "one kernel updates all"),
    whole("training.seed", "train.seed"),
    number("training.learning_rate", "optimizer.lr"),
    taken("training.total_train_steps", "train.steps", take_steps),
    whole("training.seq_length", "train.seq_len"),
    whole("training.micro_batch_size", "train.micro_batch"),
    whole("training.gradient_accumulation_steps", "train.accumulation"),
    taken("training.max_tokens", "train.steps", take_tokens),
    no_counterpart("training.num_samples", "all of data.train is read"),
    no_counterpart("dataset.name", kData),
    no_counterpart("dataset.subset_name", kData),
    no_counterpart("dataset.split", kData),
    not_needed("dataset.num_workers", "batches are cut out of mapped files"),
    not_needed("dataset.num_proc", "texts are tokenized once, by all cores"),
    text("checkpoint.save_dir", "checkpoint.dir"),
    whole("checkpoint.save_frequency", "checkpoint.every"),
    taken("checkpoint.load_path", "", take_load),
    no_counterpart("logging.use_wandb", "weft writes metrics.jsonl and TensorBoard files: see [log]"),
    not_needed("logging.project_name", "log.dir names the run"),
    not_needed("logging.run_name", "log.dir names the run"),
    not_needed("environment.OMP_NUM_THREADS", "ranks share the cores"),
    not_needed("environment.TOKENIZERS_PARALLELISM", "ranks share the cores"),
    same("environment.FLASH_ATTEN", "attention never holds all scores"),
    not_needed("environment.HF_TOKEN", "nothing is downloaded"),
};

void finish(Translation& t) {
  constexpr std::string_view kFixed = "picotron has no other";
  t.settle_data_parallel({});
  t.imply("optimizer.schedule", std::string("constant"), kFixed);
  t.imply("optimizer.warmup", int64_t(0), kFixed);
  t.imply("optimizer.clip", 0.0, kFixed);
  t.imply("optimizer.betas", pair_of(0.9, 0.999), kFixed);
  t.imply("optimizer.weight_decay", 0.01, kFixed);
  t.imply("train.precision", std::string("bf16"), "picotron's default");
}

}  // namespace
}  // namespace picotron

Format picotron_format() {
  using namespace picotron;
  return {ImportKind::picotron, "picotron", "picotron", kRules, finish};
}

}  // namespace weft::plan
