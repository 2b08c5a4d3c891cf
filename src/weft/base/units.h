// Units of memory.
#pragma once

namespace weft {

inline constexpr double kMebi = double(1 << 20), kGibi = double(1 << 30);

constexpr double gib(auto bytes) { return double(bytes) / kGibi; }

}  // namespace weft
