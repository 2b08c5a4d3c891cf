// estimate_memory: what each rank of a recipe will hold, from a step that is run without computing.
#pragma once
#include <vector>

#include "weft/train/nf4_held.h"
#include "weft/train/recipe.h"

namespace weft {

struct MemoryEstimate {
  // Weights, those of models beside it too, their packed copies, gradients, optimizer state, rotary tables.
  int64_t state_bytes = 0;
  Nf4Held nf4;
  int64_t peak_bytes = 0;  // the most at once: what AllocatorStats::peak_bytes of a run will say
};

// Of one rank of the recipe's mesh. The recipe's model must be complete. Runs the trainer over meta kernels and meta
// memory: the allocator's figures are those of the real run, byte for byte, because it is the same program. Kernels'
// scratch is not part of them. teacher: what beside_of says.
MemoryEstimate estimate_memory(const Recipe& recipe, int rank, const ModelConfig* teacher = nullptr);
// Of every rank.
std::vector<MemoryEstimate> estimate_memory(const Recipe& recipe);

}  // namespace weft
