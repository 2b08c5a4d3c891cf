// The parity cases of kernels that hand a state from token to token.
#pragma once
#include "kernels/parity_cases.h"

namespace weft {

void add_recurrence_cases(std::vector<ParityCase>& cases);

}  // namespace weft
