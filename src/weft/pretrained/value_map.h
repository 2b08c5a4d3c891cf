// ValueMap: what files hold in place of the values of a parameter.
#pragma once
#include <cmath>
#include <cstdint>

namespace weft {

enum class ValueMap : uint8_t {
  same,
  plus_one,   // 1 + x, of norms that multiply by that
  minus_exp,  // -exp(x), of rates that are kept as logarithms; always below 0
  doubled,    // 2 x, of what is added as the mean of two
};

inline float stored_value(ValueMap map, float x) {
  switch (map) {
    case ValueMap::plus_one: return x + 1;
    case ValueMap::minus_exp: return -std::exp(x);
    case ValueMap::doubled: return 2 * x;
    default: return x;
  }
}

// Not a number where no value is stored so.
inline float value_of_stored(ValueMap map, float x) {
  switch (map) {
    case ValueMap::plus_one: return x - 1;
    case ValueMap::minus_exp: return std::log(-x);
    case ValueMap::doubled: return x / 2;
    default: return x;
  }
}

}  // namespace weft
