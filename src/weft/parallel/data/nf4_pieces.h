// Parameters held as NF4, of which ranks own runs of blocks: quantised from their whole values, and read again.
#pragma once
#include "weft/base/function_ref.h"
#include "weft/parallel/data/bucket.h"

namespace weft {

// Quantises what `owned` has of a parameter; `read` gives any elements of the whole weight, all of which are read, so
// that every mesh has the same codes. scales: those it was quantised with before, where `read` gives the values that
// it then stood for; empty: new ones. Publishing is due afterwards.
void encode_nf4(Context& context, const Owned& owned, Param& param, nf4::Encoder::Read read,
                std::span<const float> scales = {});
// The same from the parameter's initial values for `seed`.
void encode_initial(Context& context, const Owned& owned, Param& param, uint64_t seed);

// Calls visit(here, first, is_counted) for the elements of a piece, decoded to f32, as Optimizer::VisitState.
void decode_nf4(Stream& stream, const Owned& owned, const Piece& piece,
                FunctionRef<void(const Tensor& here, int64_t first, bool is_counted)> visit);

}  // namespace weft
