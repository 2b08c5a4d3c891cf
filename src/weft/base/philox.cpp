// Philox: ten rounds of two products, of which the halves change places.
#include "weft/base/philox.h"

#include <cmath>

namespace weft {

Philox4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  Philox4 c{uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high), uint32_t(counter_high >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c;
}

uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

float philox_normal(uint64_t seed, uint64_t name, uint64_t index) {
  const Philox4 bits = philox(seed, index, name);
  const float u = (float(bits[0] >> 8) + 1.0f) * 0x1p-24f;  // (0, 1]: its logarithm is finite
  return std::sqrt(-2.0f * std::log(u)) * std::cos(6.2831853071795864f * to_uniform(bits[1]));
}

}  // namespace weft
