// visit_weight: this rank's share of a weight as f32, whether it is trained or frozen.
#pragma once
#include "weft/optim/optimizer.h"
#include "weft/train/trainer.h"

namespace weft {

// Calls visit(here, first, is_counted), as Optimizer::VisitState is called, for all that `owned` has of a parameter:
// its master, or, where it is frozen in a narrower dtype, its values in f32. With `is_written` what visit has left in
// `here` is kept; afterwards Trainer::weights_changed is due.
void visit_weight(Context& context, std::span<const Owned> owned, std::string_view param, bool is_written,
                  Optimizer::VisitState visit);

// What is trained, then what is frozen.
std::vector<Owned> all_weights(const Trainer& trainer);

}  // namespace weft
