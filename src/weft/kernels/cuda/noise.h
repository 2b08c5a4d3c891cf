// noise_of: operands to try something out with, on the device.
#pragma once
#include <string_view>

#include "weft/kernels/kernels.h"

namespace weft::cuda {

// Normal deviates of f32, bf16 or f16, the same for the same name; repeated where there are many. Throws Error where
// there is no memory for them.
Tensor noise_of(Stream& stream, Allocator& memory, DType type, const Shape& shape, std::string_view name);

}  // namespace weft::cuda
