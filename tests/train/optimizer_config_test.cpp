// The keys below [optimizer]: defaults by optimizer, and refusals.
#include "weft/train/optimizer_config.h"
#include "weft/base/error.h"

namespace weft {
namespace {

OptimizerConfig read_optimizer_keys(const std::string& text) {
  Toml toml = Toml::parse("[optimizer]\n" + text, "r.toml");
  const OptimizerConfig c = read_optimizer(toml, 1000);
  toml.reject_unknown();
  return c;
}

void expect_optimizer_refused(const std::string& text, const std::string& why) {
  try {
    read_optimizer_keys(text);
    ADD_FAILURE() << text << " was accepted";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
  }
}

TEST(OptimizerConfigTest, HasDefaultsByOptimizer) {
  EXPECT_EQ(read_optimizer_keys("").kind, OptimizerKind::adamw);
  const OptimizerConfig lion = read_optimizer_keys("name = \"lion\"");
  EXPECT_EQ(lion.lion.beta2, 0.99);
  EXPECT_EQ(lion.schedule.lr, 1e-4);
  const OptimizerConfig muon =
      read_optimizer_keys("name = \"muon\"\nweight_decay = 0.2\nadamw_lr_ratio = 0.3\nmomentum = 0.9");
  EXPECT_EQ(muon.muon.weight_decay, 0.2);
  EXPECT_EQ(muon.muon.adamw.weight_decay, 0.2);
  EXPECT_EQ(muon.muon.adamw_lr_ratio, 0.3);
  EXPECT_EQ(muon.muon.momentum, 0.9);
  EXPECT_TRUE(muon.muon.nesterov);
  EXPECT_EQ(read_optimizer_keys("name = \"adafactor\"\nclip_threshold = 2").adafactor.clip_threshold, 2);
  EXPECT_EQ(read_optimizer_keys("name = \"adamw8bit\"\nbetas = [0.8, 0.9]").adamw.beta2, 0.9);
  EXPECT_TRUE(read_optimizer_keys("name = \"sgd\"\nnesterov = true").sgd.nesterov);
}

TEST(OptimizerConfigTest, RefusesWhatDoesNotFit) {
  expect_optimizer_refused("name = \"adam\"", "adamw");
  expect_optimizer_refused("momentum = 0.9", "it is a key of sgd, muon, not of adamw");
  expect_optimizer_refused("name = \"sgd\"\nbetas = [0.9, 0.9]", "not of sgd");
  expect_optimizer_refused("name = \"sgd\"\nmomentum = 1.0", "momentum");
  expect_optimizer_refused("name = \"lion\"\neps = 1e-8", "not of lion");
  expect_optimizer_refused("schedule = \"constant\"\nmin_lr = 0.0", "a constant rate never falls");
}

}  // namespace
}  // namespace weft
