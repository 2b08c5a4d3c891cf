// Instructions for tensor cores and for what feeds them, one function each: sm_80 and later. The emulator has its own
// file of this name. Source: PTX ISA 9.0, "mma.m16n8k16", "ldmatrix", "cp.async", "atom".
#pragma once
#include <type_traits>

#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {

// sums += a b for 16 x 16 a and 16 x 8 b of N, two neighbours of k to a word. Lane t has, with g = t / 4 and c = 2 (t
// % 4), of a: rows g, g + 8, g, g + 8 at k from c, c, c + 8, c + 8; of b: column g at k from c and c + 8; of the
// sums: columns c and c + 1 of row g, then of row g + 8.
template <class N>
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                             unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<N, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of 16 bits: lane t names row t % 8 of matrix t / 8, in shared memory, and gets of each matrix
// columns 2 (t % 4) and the next of row t / 4.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}

// Four 8 x 8 matrices of 16 bits, transposed: lane t names row t % 8 of matrix t / 8, in shared memory, and gets of
// each matrix rows 2 (t % 4) and the next at column t / 4.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}

// Copies 16 bytes to shared memory by the time that the thread has waited.
__device__ __forceinline__ void start_copy16(void* shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(unsigned(__cvta_generic_to_shared(shared))), "l"(__cvta_generic_to_global(from))
               : "memory");
}
// The same of the first `bytes` of them, and zeros in place of the others.
__device__ __forceinline__ void start_copy16(void* shared, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(unsigned(__cvta_generic_to_shared(shared))), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
// The copies that this thread started since the last group are a group.
__device__ __forceinline__ void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but this thread's kPending newest groups are there.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Two numbers in a word, rounded to nearest even.
template <class N>
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned word;
  if constexpr (std::is_same_v<N, __half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

// Exactly 1 of 0, and 0 of minus infinity.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// x y + z, rounded once, whatever the compiler would make of it.
__device__ __forceinline__ float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }

// The compiler does not know what x is: it computes what depends on it here, and keeps it no longer than needed.
__device__ __forceinline__ void forget(int& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void forget(const std::byte*& x) { asm volatile("" : "+l"(x)); }

template <class X>
__device__ __forceinline__ X of_lane(X x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}

// How many came before. What they wrote until then is seen after this, by all of the block behind its next barrier,
// and so is what the block wrote before its last one by those who come later.
__device__ __forceinline__ unsigned count_in(unsigned* counter) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return before;
}
// What another block of this kernel wrote.
template <class X>
__device__ __forceinline__ X load_written(const X* p) {
  return __ldcg(p);
}

}  // namespace weft::cuda
