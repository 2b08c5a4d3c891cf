// reduce: folds the buffers of several ranks, in rank order, into one or many.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/comm/collective.h"

namespace weft {

// out[j][i] = in[0][i] o in[1][i] o ... for every j and i < count, accumulated in f32 or wider and rounded once. An
// `out` may be one of `in`; otherwise no two buffers overlap. A NaN anywhere gives NaN, also for max and min.
void reduce(DType dtype, Reduction reduction, std::span<std::byte* const> out, std::span<const std::byte* const> in,
            int64_t count);

}  // namespace weft
