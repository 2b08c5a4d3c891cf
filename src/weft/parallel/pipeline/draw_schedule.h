// draw: a schedule as text, one line a rank, time to the right.
#pragma once
#include <string>

#include "weft/parallel/pipeline/check_schedule.h"

namespace weft {

// F3 is the forward of micro-batch 3, B3 its backward (or only the input half), W3 its weight half, each as wide as
// it takes long, dots where the rank idles. A rank's second stage is written f3, b3, w3; where there are more than
// two stages they have a letter behind: F3a, F3b, F3c. The last lines say makespan, bubble and memory. At most
// `columns` wide: numbers that do not fit are left out, then the end is cut off, and a line says so. Throws Error
// when the schedule is not sound.
std::string draw(const Schedule& schedule, const ActionCosts& costs = {}, int columns = 200);

}  // namespace weft
