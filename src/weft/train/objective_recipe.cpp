// Objectives in recipes: keys, and what they go with.
#include "weft/train/objective_recipe.h"

#include "weft/train/recipe_names.h"

namespace weft {

void read_preference(Toml& toml, Recipe& recipe) {
  if (!toml.has_section("preference")) return;
  PreferenceConfig& c = recipe.preference;
  const std::string method = toml.choice("preference.method", "dpo", std::span(kPreferenceNames).subspan(1));
  c.method = PreferenceMethod(std::ranges::find(kPreferenceNames, method) - std::begin(kPreferenceNames));
  if (c.method == PreferenceMethod::reward)
    c.center = toml.number("preference.center", c.center, 0, 1e3);
  else
    c.beta = toml.number("preference.beta", c.beta, 1e-6, 1e3);
  if (c.method == PreferenceMethod::dpo)
    c.label_smoothing = toml.number("preference.label_smoothing", c.label_smoothing, 0, 0.499);
  if (c.method == PreferenceMethod::kto) {
    c.desirable_weight = toml.number("preference.desirable_weight", c.desirable_weight, 0, 1e3);
    c.undesirable_weight = toml.number("preference.undesirable_weight", c.undesirable_weight, 0, 1e3);
  }
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
  const ScheduleKind kind = recipe.mesh.schedule;
  if (recipe.mesh.shape.pp > 1 && (kind == ScheduleKind::zbv || kind == ScheduleKind::dualpipe_v))
    toml.reject("mesh.schedule",
                "there the loss is made on the first rank, and a teacher's last layers are on the last: "
                "write another schedule beside [distill]");
}

void read_policy(Toml& toml, Recipe& recipe) {
  if (!toml.has_section("rl")) return;
  PolicyConfig& c = recipe.policy;
  const TrainConfig& t = recipe.train;
  const std::string method =
      toml.choice("rl.method", std::string(kPolicyNames[1]), std::span(kPolicyNames).subspan(1));
  c = PolicyConfig::of(PolicyMethod(std::ranges::find(kPolicyNames, method) - std::begin(kPolicyNames)));
  c.reward = choose(toml, "rl.reward", c.reward, kRewardNames);
  if (c.reward == RewardKind::command) {
    c.command = toml.require<std::vector<std::string>>("rl.command");
    if (c.command.empty())
      toml.reject("rl.command", "write a program and its arguments, as [\"python3\", \"score.py\"]");
    c.command_timeout_s = toml.number("rl.command_timeout_s", c.command_timeout_s, 1e-3, 1e7);
  }
  if (c.reward == RewardKind::model) c.reward_model = toml.require<std::string>("rl.reward_model");
  c.answers = toml.integer("rl.answers", c.answers, 2, 1 << 16);
  c.max_tokens = toml.integer("rl.max_tokens", std::max<int64_t>(t.seq_len / 2, 1), 1, t.seq_len);
  c.running = toml.integer("rl.running", c.running, 1, 1 << 16);
  c.updates = toml.integer("rl.updates", c.updates, 1, 1 << 16);
  c.attempts = toml.integer("rl.attempts", c.attempts, 1, 1 << 10);
  c.log_answers = toml.integer("rl.log_answers", c.log_answers, 0, 1 << 24);
  c.temperature = toml.number("rl.temperature", c.temperature, 1e-3, 1e3);
  c.clip_low = toml.number("rl.clip_low", c.clip_low, 0, 1);
  c.clip_high = toml.number("rl.clip_high", c.clip_high, 0, 1e3);
  c.beta = toml.number("rl.beta", c.beta, 0, 1e3);
  if (t.global_batch * c.updates % c.answers != 0)
    toml.reject("rl.answers",
                fmt::format("it must divide train.global_batch x rl.updates = {}, the answers of a round",
                            t.global_batch * c.updates));
  if (has_reference_beside(recipe) && recipe.model_path.empty())
    toml.reject("rl.beta", "there is no model that answers could stay near: write model.path, or 0");
  if (recipe.preference.method != PreferenceMethod::none || !recipe.distill.teacher.empty())
    toml.reject("rl.method", "a run has one objective: remove [rl], or [preference] and [distill]");
  if (recipe.data.valid_fraction > 0)
    toml.reject("data.valid_fraction", "prompts are not cut off data.train: write 0, and others in data.valid");
  const ScheduleKind kind = recipe.mesh.schedule;
  if (has_reference_beside(recipe) && recipe.mesh.shape.pp > 1 &&
      (kind == ScheduleKind::zbv || kind == ScheduleKind::dualpipe_v))
    toml.reject(
        "mesh.schedule",
        "there the loss is made on the first rank, and a reference's last layers are on the last: write another "
        "schedule, or rl.beta = 0");
}

}  // namespace weft
