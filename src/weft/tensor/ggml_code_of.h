// code_of: the code of a value in units of a block's scale.
#pragma once
#include <algorithm>

namespace weft::ggml {

// The nearest of 0..levels, whatever the value: far outside of an int's range, or not a number, which gets 0.
inline int code_of(float value, int levels) {
  return int(std::min(float(levels) + 0.5f, std::max(0.0f, value + 0.5f)));
}

}  // namespace weft::ggml
