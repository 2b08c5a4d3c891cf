// The processor's dot product of bf16 pairs (VDPBF16PS): whether it is there, and whether it pays.
#pragma once

namespace weft::cpu {

#if defined(__x86_64__)
inline bool has_bf16_pairs() { return __builtin_cpu_supports("avx512bf16"); }
// Whether it makes more sums than fp32 products of widened numbers do. AMD's cores make twice as many; Intel's begin
// one every other cycle, half as many (docs/adr/0055-pairs-where-they-pay.md).
inline bool are_bf16_pairs_fast() { return has_bf16_pairs() && !__builtin_cpu_is("intel"); }
#else
inline bool has_bf16_pairs() { return false; }
inline bool are_bf16_pairs_fast() { return false; }
#endif

}  // namespace weft::cpu
