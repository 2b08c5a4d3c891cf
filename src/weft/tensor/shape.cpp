// How a shape is written in messages.
#include "weft/tensor/shape.h"

#include <fmt/ranges.h>

namespace weft {

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

}  // namespace weft
