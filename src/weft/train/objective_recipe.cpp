// Objectives in recipes: keys, and what they go with.
#include "weft/train/objective_recipe.h"

namespace weft {

void read_preference(Toml& toml, Recipe& recipe) {
  if (!toml.has_section("preference")) return;
  PreferenceConfig& c = recipe.preference;
  const std::string method = toml.choice("preference.method", "dpo", {"dpo", "orpo", "kto"});
  c.method = method == "dpo"    ? PreferenceMethod::dpo
             : method == "orpo" ? PreferenceMethod::orpo
                                : PreferenceMethod::kto;
  c.beta = toml.number("preference.beta", c.beta, 1e-6, 1e3);
  if (c.method == PreferenceMethod::dpo)
    c.label_smoothing = toml.number("preference.label_smoothing", c.label_smoothing, 0, 0.499);
  if (c.method == PreferenceMethod::kto) {
    c.desirable_weight = toml.number("preference.desirable_weight", c.desirable_weight, 0, 1e3);
    c.undesirable_weight = toml.number("preference.undesirable_weight", c.undesirable_weight, 0, 1e3);
  }
  if (recipe.mesh.shape.cp > 1)
    toml.reject("mesh.cp", "answers that are compared lie on one rank: write 1 beside [preference]");
  if (recipe.train.seq_len % 2 != 0)
    toml.reject("train.seq_len", "a row has two answers, a half each: write an even number");
  if (recipe.data.valid_fraction > 0)
    toml.reject("data.valid_fraction", "pairs are not cut off data.train: write 0, and others in data.valid");
}

void read_distill(Toml& toml, Recipe& recipe) {
  if (!toml.has_section("distill")) return;
  DistillConfig& c = recipe.distill;
  c.teacher = toml.require<std::string>("distill.teacher");
  c.alpha = toml.number("distill.alpha", c.alpha, 0, 1);
  c.temperature = toml.number("distill.temperature", c.temperature, 1e-3, 1e3);
  if (recipe.preference.method != PreferenceMethod::none)
    toml.reject("distill.teacher", "a run has one objective: remove [distill] or [preference]");
  if (recipe.mesh.shape.cp > 1) toml.reject("mesh.cp", "a teacher reads whole rows: write 1 beside [distill]");
  const ScheduleKind kind = recipe.mesh.schedule;
  if (recipe.mesh.shape.pp > 1 && (kind == ScheduleKind::zbv || kind == ScheduleKind::dualpipe_v))
    toml.reject("mesh.schedule",
                "there the loss is made on the first rank, and a teacher's last layers are on the last: "
                "write another schedule beside [distill]");
}

}  // namespace weft
