// ContinuedStep: a step of many micro-batches, played twice with fewer, and continued.
#pragma once
#include <cstdint>

#include "weft/plan/step_trace.h"
#include "weft/train/recipe.h"

namespace weft::plan {

// What one more round of micro-batches takes is constant once the pipeline is full, so that of every figure
// all = later + (later - earlier) * rounds.
struct ContinuedStep {
  int64_t earlier = 0;  // micro-batches; 0: the step has so few that it is played as it is
  int64_t later = 0;
  double rounds = 0;

  explicit ContinuedStep(const Recipe& recipe);

  bool is_whole() const { return earlier == 0; }
  double operator()(double later_one, double earlier_one) const {
    return later_one + (later_one - earlier_one) * rounds;
  }
  int64_t operator()(int64_t later_one, int64_t earlier_one) const {
    return int64_t((*this)(double(later_one), double(earlier_one)));
  }
  // Its memory, of which every kind of peak grows by itself.
  void go_on(StepTrace& later_one, const StepTrace& earlier_one) const;
};

// The recipe with so many micro-batches in a step.
Recipe with_accumulation(Recipe recipe, int64_t accumulation);

}  // namespace weft::plan
