// stack_of_program: what the program of a published run does otherwise than weft.
#pragma once
#include "weft/plan/cost_model.h"
#include "weft/plan/published_row.h"
#include "weft/train/recipe.h"

namespace weft::plan {

// By the columns `source`, `notes`, `precision` and `recompute`. A program that is not known is taken for compiled
// PyTorch with FlashAttention-2. docs/planning.md says where each effect comes from.
Stack stack_of_program(const PublishedRow& row, const Recipe& recipe, const Hardware& hardware);

}  // namespace weft::plan
