// Philox4x32-10: random numbers as a pure function of (key, counter), so that no generator state has to be kept.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

using Philox4 = std::array<uint32_t, 4>;

Philox4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0);

// FNV-1a: turns a parameter's or an op's name into the high half of a counter.
uint64_t name_hash(std::string_view name);

// A number of 64 bits of the first two.
constexpr uint64_t to_number(const Philox4& bits) { return uint64_t(bits[0]) << 32 | bits[1]; }

// Uniform in [0, 1), from the top 24 bits.
constexpr float to_uniform(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// The normal deviate of one element: a pure function of (seed, name, global index). Box-Muller.
float philox_normal(uint64_t seed, uint64_t name, uint64_t index);

}  // namespace weft
