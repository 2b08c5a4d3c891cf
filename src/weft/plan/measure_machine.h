// measure_machine: this machine as hardware of a plan, from kernels that a small training run times.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "weft/plan/hardware.h"

namespace weft::plan {

struct MeasureOptions {
  std::vector<int> ranks = {1, 2, 4};  // how many at once; the first must be 1
  int rounds = 3, repeats = 4;         // steps of each model in each round, of which the least count
  std::function<void(const std::string&)> progress = {};
};

// Trains two small models of 1, 2 and more ranks beside each other on the cpu kernels, each of them timed, and fits
// the figures of the cost model to the least times: products by their FLOPs and depth, attention, every other kernel
// by its bytes, what lies between kernels, and collectives between ranks that are threads. About a minute where
// nothing else runs.
Hardware measure_machine(const MeasureOptions& options = {});

}  // namespace weft::plan
