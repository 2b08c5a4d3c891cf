// recipe_text: the keys of a plan, written alone or over those of a recipe.
#include "weft/plan/recipe_text.h"

#include <fmt/format.h>

#include <iterator>

#include "weft/models/model_fields.h"
#include "weft/train/recipe_names.h"

namespace weft::plan {
namespace {

// The keys of a model with their values, in the order of visiting.
struct ModelKeys {
  struct Key {
    std::string name, value;
    bool is_off;  // it counts for nothing beside the others
  };
  std::vector<Key> keys;

  explicit ModelKeys(ModelConfig config) { visit_model_fields(*this, config); }

  void number(const char* key, int64_t& v) { add(key, fmt::format("{}", v)); }
  void number(const char* key, float& v) { add(key, fmt::format("{}", v)); }
  void number(const char* key, double& v) { add(key, fmt::format("{}", v)); }
  void flag(const char* key, bool& v) { add(key, v ? "true" : "false"); }
  void choice(const char* key, std::span<const std::string_view> names, int& i) {
    add(key, fmt::format("\"{}\"", names[size_t(i)]));
  }
  void list(const char* key, std::vector<double>& v) { add(key, fmt::format("[{}]", fmt::join(v, ", "))); }
  void begin_group(const char*, bool is_on) { is_off_ = !is_on; }
  void end_group() { is_off_ = false; }

 private:
  void add(const char* key, std::string value) { keys.push_back({key, std::move(value), is_off_}); }
  bool is_off_ = false;
};

// What a plan decides. A key at its usual value is left out of a recipe that does not name it.
struct PlannedKey {
  std::string_view key;
  Toml::Value value;
  bool is_usual = false;
};

std::string named(std::span<const std::string_view> names, size_t i) { return std::string(names[i]); }

std::vector<PlannedKey> planned_keys(const Recipe& recipe) {
  const TrainConfig& t = recipe.train;
  const MeshConfig& m = recipe.mesh;
  const auto offload = [](std::string_view key, OffloadTo to) {
    return PlannedKey{key, named(kOffloadNames, size_t(to)), to == OffloadTo::none};
  };
  return {{"train.seq_len", t.seq_len},
          {"train.global_batch", t.global_batch},
          {"train.micro_batch", t.micro_batch},
          {"train.accumulation", t.accumulation, true},
          {"train.precision", named(kPrecisionNames, size_t(t.precision))},
          {"train.gradients", named(kGradientNames, size_t(t.gradients)), t.gradients == GradientType::fp32},
          {"mesh.dp", int64_t(m.shape.dp())},
          {"mesh.tp", int64_t(m.shape.tp)},
          {"mesh.pp", int64_t(m.shape.pp)},
          {"mesh.cp", int64_t(m.shape.cp)},
          {"mesh.ep", int64_t(m.shape.ep)},
          {"mesh.zero", int64_t(m.zero)},
          {"mesh.hsdp", int64_t(m.shape.replicate), m.shape.replicate == 1},
          {"mesh.reshard_after_forward", m.reshard_after_forward, m.reshard_after_forward},
          {"mesh.cp_mode", named(kContextModeNames, size_t(m.cp_mode)), m.shape.cp == 1},
          {"mesh.sequence_parallel", m.sequence_parallel, !m.sequence_parallel},
          {"mesh.schedule", std::string(name_of(m.schedule)), m.shape.pp == 1},
          {"mesh.virtual_stages", int64_t(m.virtual_stages), m.shape.pp == 1},
          {"mesh.layers_per_stage", m.layers_per_stage, m.layers_per_stage.empty()},
          {"mesh.recompute", name_of(t.recompute)},
          offload("mesh.offload_optimizer", m.offload.optimizer),
          offload("mesh.offload_parameters", m.offload.parameters),
          offload("mesh.offload_activations", m.offload.activations)};
}

// A plan that no run would take is none.
std::string checked(std::string text) {
  Toml toml = Toml::parse(text, "the planned recipe");
  read_recipe(toml);
  return text;
}

}  // namespace

std::string recipe_text(const Recipe& recipe, std::string_view title) {
  std::string out = fmt::format("# {}\n", title);
  Toml toml;
  const auto put = [&](std::string_view key, Toml::Value value) {
    toml.allow(key);  // keys are written in this order
    toml.put(key, std::move(value));
  };
  if (!recipe.model_path.empty()) {
    put("model.path", recipe.model_path);
  } else {
    fmt::format_to(std::back_inserter(out), "[model]\nfamily = \"{}\"\n", recipe.model.family);
    const ModelKeys usual(family_defaults(recipe.model.family)), own(recipe.model);
    for (size_t i = 0; i < own.keys.size(); ++i)
      if (!own.keys[i].is_off && own.keys[i].value != usual.keys[i].value)
        fmt::format_to(std::back_inserter(out), "{} = {}\n", own.keys[i].name, own.keys[i].value);
    out += "\n";
  }
  put("data.train", recipe.data.train);
  put("train.steps", recipe.train.steps);
  for (const PlannedKey& k : planned_keys(recipe))
    if (!k.is_usual) put(k.key, k.value);
  return checked(out + toml.to_text());
}

std::string recipe_text_over(const Toml& own, const Recipe& planned) {
  Toml copy = own, toml = own;
  const Recipe before = read_recipe(copy);
  for (const PlannedKey& k : planned_keys(planned))
    if (!k.is_usual || own.has(k.key)) toml.put(k.key, k.value);
  if (before.model_path.empty() && before.model.context < planned.train.seq_len)
    toml.put("model.context", planned.train.seq_len);
  return checked(toml.to_text());
}

}  // namespace weft::plan
