// OptimizerConfig: the optimizer, its options and the learning rate of a recipe.
#pragma once
#include "weft/base/toml.h"
#include "weft/optim/adafactor.h"
#include "weft/optim/adamw.h"
#include "weft/optim/momentum.h"
#include "weft/optim/muon.h"
#include "weft/optim/schedule.h"

namespace weft {

enum class OptimizerKind : uint8_t { adamw, adamw8bit, adafactor, lion, sgd, muon };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  AdamWOptions adamw;  // of adamw8bit too
  AdafactorOptions adafactor;
  LionOptions lion;
  SgdOptions sgd;
  MuonOptions muon;
  LrSchedule schedule;
  double clip = 1.0;  // 0: never
};

// The keys below [optimizer]; `steps` is the length of the run. Throws UsageError for a key of another optimizer.
OptimizerConfig read_optimizer(Toml& toml, int64_t steps);

// Options with which rounding errors of gradients stay rounding errors of weights, where gradients have this root
// mean square: what divides by the size of a gradient gets an epsilon of that size. Lion's sign becomes continuous.
void make_continuous(OptimizerConfig& config, double gradient_rms);

}  // namespace weft
