// ignore_progress: for what tells how far it has come where nobody looks.
#pragma once
#include <cstdint>

namespace weft {

inline constexpr auto ignore_progress = [](int64_t, int64_t) {};

}  // namespace weft
