// The order of one rank's actions for each kind of schedule; private to make_schedule.
#pragma once
#include <vector>

#include "weft/parallel/pipeline/schedule.h"

namespace weft {

// Each is for two and more ranks and a shape that make_schedule has checked.
std::vector<Action> gpipe_actions(const PipelineShape& shape, int rank);
std::vector<Action> one_f_one_b_actions(const PipelineShape& shape, int rank);
std::vector<Action> interleaved_actions(const PipelineShape& shape, int rank);
std::vector<Action> zb_h1_actions(const PipelineShape& shape, int rank);
std::vector<Action> zbv_actions(const PipelineShape& shape, int rank);
std::vector<Action> dualpipe_v_actions(const PipelineShape& shape, int rank);

// Drops the micro-batches from `num_micro_batches` on. What is left keeps its order on every rank, so that a schedule
// that ends still does.
std::vector<Action> without_padding(std::vector<Action> actions, int num_micro_batches);

}  // namespace weft
