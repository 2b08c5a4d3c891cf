// The parity of a backend: calls of every op, and the demand that its results equal the reference's in f64 and
// repeat.
#pragma once
#include <functional>

#include "operands.h"

namespace weft {

struct ParityCase {
  std::string name;
  std::function<void(const Kernels&, Stream&, Operands&)> run;
  // How far a bf16 result may be off beside its own rounding, in parts of the largest element: what is rounded
  // inside the kernel, such as attention's probabilities. f16 has three more bits.
  double bf16_noise = 1e-5;
  bool takes_f16 = true;
};

const std::vector<ParityCase>& parity_cases();
std::vector<std::string> names_of_parity_cases();
const ParityCase& parity_case(std::string_view name);

// Runs the case twice with the kernels of the bench's device; fails the test that called it.
void expect_parity(const ParityCase&, const Kernels&, Workbench&, DType, int64_t guard = Operands::kOddGuard);

}  // namespace weft
