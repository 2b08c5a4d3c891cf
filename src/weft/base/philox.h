// Philox4x32-10: random numbers as a pure function of (key, counter), so that no generator state has to be kept.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace weft {

using Philox4 = std::array<uint32_t, 4>;

constexpr Philox4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  Philox4 c{uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high), uint32_t(counter_high >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c;
}

// FNV-1a: turns a parameter's or an op's name into the high half of a counter.
constexpr uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

// Uniform in [0, 1), from the top 24 bits.
constexpr float to_uniform(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// The normal deviate of one element: a pure function of (seed, name, global index). Box-Muller.
inline float philox_normal(uint64_t seed, uint64_t name, uint64_t index) {
  const Philox4 bits = philox(seed, index, name);
  const float u = (float(bits[0] >> 8) + 1.0f) * 0x1p-24f;  // (0, 1]: its logarithm is finite
  return std::sqrt(-2.0f * std::log(u)) * std::cos(6.2831853071795864f * to_uniform(bits[1]));
}

}  // namespace weft
