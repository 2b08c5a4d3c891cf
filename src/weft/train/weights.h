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

// Whether this rank holds a parameter as NF4. Such a one is not written by visit_weight, but by
bool is_held_as_nf4(std::span<const Owned> owned, std::string_view param);
// which quantises it anew: see encode_nf4.
void write_nf4(Context& context, std::span<const Owned> owned, std::string_view param, nf4::Encoder::Read read,
               std::span<const float> scales = {});

// What such a one was quantised with, once among all ranks.
void visit_nf4_scales(Stream& stream, std::span<const Owned> owned, std::string_view param,
                      Optimizer::VisitState visit);

// What is trained, then what is frozen.
std::vector<Owned> all_weights(const Trainer& trainer);

}  // namespace weft
