// run_rank: one rank's part of a training run: resume, steps, evaluation, metrics, checkpoints.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/data/dataset.h"
#include "weft/pretrained/model_use.h"
#include "weft/train/policy/answerer.h"
#include "weft/train/recipe.h"

namespace weft {

struct RunReport {
  int64_t first_step = 0, steps = 0;   // where this run began (after a resume) and ended
  double first_loss = 0, loss = 0;     // of its first and its last step
  double eval_loss = 0;                // of the last evaluation; NaN without one
  double reward = 0, eval_reward = 0;  // of the last step, of the last evaluation; NaN where there is none
  double tokens_per_s = 0;             // over the run, without its first step where there are more
  double mfu = 0;
  double seconds = 0;
  std::string checkpoint;  // the last one written; empty when none was
  bool was_interrupted = false;
  bool is_first_rank = true;
};

struct RunOptions {
  int threads = 1;                          // of this rank
  int64_t plain_every = 10;                 // steps between lines where standard error is no terminal
  double device_peak_flops = 0;             // of the recipe's device and precision; 0: not known, and no MFU
  const std::atomic<bool>* stop = nullptr;  // set from outside: save and end after the step under way
  const ModelSource* start = nullptr;       // the recipe's model_path, opened; null where it has none
  const ModelSource* teacher = nullptr;     // likewise of path_beside
  ModelUse use = {};                        // of the trained model, for its checkpoints
  MakeAnswerer make_answerer = {};          // of recipes with [rl]
  // Of `train`: called once the recipe's model is complete and before any rank allocates; throws what forbids the
  // run.
  std::function<void(const Recipe&)> check;
};

// Collective over `world`; rank 0 writes the files and the progress, and its report is complete.
RunReport run_rank(const Recipe& recipe, const Dataset& dataset, Communicator& world, const RunOptions& options);

}  // namespace weft
