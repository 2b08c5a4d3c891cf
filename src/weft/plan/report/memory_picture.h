// memory_picture: what each stage holds over a step, by use, as SVG.
#pragma once
#include <span>
#include <string>

#include "weft/plan/step_plan.h"

namespace weft::plan {

struct MemoryPicture {
  double width = 1120;
  double left = 92;
  int max_stages = 8;  // drawn: the fullest always, the others at equal distances
  std::string id = "memory";
};

// One chart for each stage, on the time axis of its timeline; the peak is marked with the op and the micro-batch. The
// dashed line is what a device has for tensors, where it is in sight.
std::string draw_memory(const StepPlan& plan, double seconds, const MemoryPicture& options = {});

}  // namespace weft::plan
