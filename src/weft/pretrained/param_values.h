// read_values: this rank's part of a parameter from wherever its values are stored.
#pragma once
#include <span>

#include "weft/autograd/param.h"
#include "weft/base/function_ref.h"

namespace weft {

// Fills the parameter's memory. read: elements [first, first + out.size()) of the whole parameter, row by row, for
// many threads at once; they are converted piece by piece.
void read_values(Context& context, const Param& param, FunctionRef<void(int64_t first, std::span<float> out)> read);

// The same from where they are stored in the dtype of the value. copy: elements from `first` on, as many as `out` has
// room for.
void copy_values(Context& context, const Param& param,
                 FunctionRef<void(int64_t first, std::span<std::byte> out)> copy);

}  // namespace weft
