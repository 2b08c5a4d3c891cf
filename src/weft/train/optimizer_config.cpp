// OptimizerConfig: from keys to options.
#include "weft/train/optimizer_config.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

constexpr int64_t kLongestSchedule = int64_t(1) << 40;
constexpr std::array<std::string_view, 6> kOptimizerNames = {"adamw", "adamw8bit", "adafactor",
                                                             "lion",  "sgd",       "muon"};

// What only some optimizers have.
struct OwnKey {
  std::string_view key;
  std::vector<std::string_view> of;
};
void reject_keys_of_others(const Toml& toml, std::string_view name) {
  const OwnKey keys[] = {{"betas", {"adamw", "adamw8bit", "lion", "muon"}},
                         {"eps", {"adamw", "adamw8bit", "adafactor", "muon"}},
                         {"momentum", {"sgd", "muon"}},
                         {"nesterov", {"sgd", "muon"}},
                         {"newton_schulz_steps", {"muon"}},
                         {"adamw_lr_ratio", {"muon"}},
                         {"decay_exponent", {"adafactor"}},
                         {"clip_threshold", {"adafactor"}}};
  for (const OwnKey& k : keys) {
    const std::string key = fmt::format("optimizer.{}", k.key);
    if (toml.has(key) && std::find(k.of.begin(), k.of.end(), name) == k.of.end())
      toml.reject(key, fmt::format("it is a key of {}, not of {}: leave it out", fmt::join(k.of, ", "), name));
  }
}

LrSchedule read_schedule(Toml& toml, int64_t steps, double lr) {
  LrSchedule s;
  s.steps = steps;
  s.lr = toml.number("optimizer.lr", lr, 0, 1e3);
  const std::string decay = toml.choice("optimizer.schedule", "cosine", {"cosine", "linear", "wsd", "constant"});
  s.decay = decay == "cosine"   ? Decay::cosine
            : decay == "linear" ? Decay::linear
            : decay == "wsd"    ? Decay::wsd
                                : Decay::constant;
  if (s.decay != Decay::constant)
    s.min_lr = toml.number("optimizer.min_lr", 0.1 * s.lr, 0, 1e3);
  else if (toml.has("optimizer.min_lr"))
    toml.reject("optimizer.min_lr", "a constant rate never falls: leave it out, or write another optimizer.schedule");
  s.warmup = toml.integer("optimizer.warmup", std::min<int64_t>(100, steps / 10), 0, kLongestSchedule);
  if (s.decay == Decay::wsd)
    s.decay_steps = toml.integer("optimizer.decay_steps", steps / 5, 0, kLongestSchedule);
  else
    toml.allow("optimizer.decay_steps");
  return s;
}

class Reader {
 public:
  explicit Reader(Toml& toml) : toml_(toml) {}

  void betas(double& beta1, double& beta2) {
    const auto betas = toml_.get<std::vector<double>>("optimizer.betas", {beta1, beta2});
    const auto is_beta = [](double b) { return b >= 0 && b < 1; };
    if (betas.size() != 2 || !is_beta(betas[0]) || !is_beta(betas[1]))
      toml_.reject("optimizer.betas", "write two numbers from 0 to below 1, as in [0.9, 0.95]");
    beta1 = betas[0], beta2 = betas[1];
  }
  void number(const char* key, double& value, double min, double max) { value = toml_.number(key, value, min, max); }
  void weight_decay(double& value) { number("optimizer.weight_decay", value, 0, 10); }
  void momentum(double& value, bool& nesterov) {
    value = toml_.number("optimizer.momentum", value, 0, 0.9999);
    nesterov = toml_.get<bool>("optimizer.nesterov", nesterov);
  }
  void adamw(AdamWOptions& o) {
    betas(o.beta1, o.beta2);
    number("optimizer.eps", o.eps, 0, 1);
    weight_decay(o.weight_decay);
  }

 private:
  Toml& toml_;
};

void read_options(Toml& toml, OptimizerConfig& c) {
  Reader read(toml);
  switch (c.kind) {
    case OptimizerKind::adamw:
    case OptimizerKind::adamw8bit: return read.adamw(c.adamw);
    case OptimizerKind::adafactor:
      read.number("optimizer.decay_exponent", c.adafactor.decay_exponent, 0, 1);
      read.number("optimizer.clip_threshold", c.adafactor.clip_threshold, 1e-6, 1e9);
      read.number("optimizer.eps", c.adafactor.eps, 1e-37, 1);
      return read.weight_decay(c.adafactor.weight_decay);
    case OptimizerKind::lion: read.betas(c.lion.beta1, c.lion.beta2); return read.weight_decay(c.lion.weight_decay);
    case OptimizerKind::sgd:
      read.momentum(c.sgd.momentum, c.sgd.nesterov);
      return read.weight_decay(c.sgd.weight_decay);
    case OptimizerKind::muon:
      read.momentum(c.muon.momentum, c.muon.nesterov);
      c.muon.steps = int(toml.integer("optimizer.newton_schulz_steps", c.muon.steps, 1, 100));
      read.number("optimizer.adamw_lr_ratio", c.muon.adamw_lr_ratio, 0, 1e6);
      read.adamw(c.muon.adamw);
      c.muon.weight_decay = c.muon.adamw.weight_decay;
      return;
  }
}

// Lion's updates are larger than Adam's, SGD's are as small as gradients: Chen et al., 2023.
double default_lr(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::lion: return 1e-4;
    case OptimizerKind::sgd: return 0.1;
    default: return 1e-3;
  }
}

}  // namespace

OptimizerConfig read_optimizer(Toml& toml, int64_t steps) {
  OptimizerConfig c;
  const std::string name = toml.choice("optimizer.name", "adamw", kOptimizerNames);
  c.kind = OptimizerKind(std::find(kOptimizerNames.begin(), kOptimizerNames.end(), name) - kOptimizerNames.begin());
  reject_keys_of_others(toml, name);
  c.schedule = read_schedule(toml, steps, default_lr(c.kind));
  read_options(toml, c);
  c.clip = toml.number("optimizer.clip", 1.0, 0, 1e9);
  return c;
}

void make_continuous(OptimizerConfig& c, double gradient_rms) {
  c.adamw.eps = std::max(c.adamw.eps, gradient_rms);
  c.muon.adamw.eps = std::max(c.muon.adamw.eps, gradient_rms);
  c.adafactor.eps = std::max(c.adafactor.eps, gradient_rms * gradient_rms);
  c.lion.softness = std::max(c.lion.softness, gradient_rms);
}

}  // namespace weft
