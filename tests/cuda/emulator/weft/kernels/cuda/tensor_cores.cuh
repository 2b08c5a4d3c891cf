// The file of this name of the backend, on the CPU: fragments lie in lanes as on a card, and what is copied in the
// background arrives only when it is waited for.
#pragma once
#include <type_traits>
#include <vector>

#include "weft/kernels/cuda/values.cuh"

struct alignas(8) float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

namespace weft::cuda {

inline float half_of_word(unsigned word, int i, __half) { return __half2float({uint16_t(word >> (16 * i))}); }
inline float half_of_word(unsigned word, int i, __nv_bfloat16) {
  return __bfloat162float({uint16_t(word >> (16 * i))});
}

template <class N>
void multiply_add(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  struct Fragments {
    unsigned a[4], b[2];
  };
  auto* const of_lane = static_cast<Fragments*>(emulated::warp_memory(32 * sizeof(Fragments)));
  const int me = emulated::lane();
  of_lane[me] = {{a0, a1, a2, a3}, {b0, b1}};
  emulated::sync_warp();
  for (int i = 0; i < 4; ++i) {
    const int row = me / 4 + i / 2 * 8, col = me % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int quarter = k % 8 / 2, upper = k / 8;
      const unsigned a = of_lane[row % 8 * 4 + quarter].a[row / 8 + 2 * upper];
      const unsigned b = of_lane[col * 4 + quarter].b[upper];
      sums[i] += half_of_word(a, k % 2, N()) * half_of_word(b, k % 2, N());
    }
  }
  emulated::sync_warp();
}

// words_of(rows of a matrix): what a lane gets of it.
template <class Words>
void load_matrices_as(unsigned (&to)[4], const void* row, Words&& words_of) {
  auto* const rows = static_cast<const uint16_t**>(emulated::warp_memory(32 * sizeof(uint16_t*)));
  weft::check(reinterpret_cast<uintptr_t>(row) % 16 == 0, "ldmatrix reads rows of 16 bytes that are aligned");
  rows[emulated::lane()] = static_cast<const uint16_t*>(row);
  emulated::sync_warp();
  for (int i = 0; i < 4; ++i) to[i] = words_of(rows + 8 * i);
  emulated::sync_warp();
}
inline void load_matrices(unsigned (&to)[4], const void* row) {
  const int row_here = emulated::lane() / 4, col = emulated::lane() % 4 * 2;
  load_matrices_as(to, row, [&](const uint16_t* const* rows) {
    return unsigned(rows[row_here][col]) | unsigned(rows[row_here][col + 1]) << 16;
  });
}
inline void load_transposed(unsigned (&to)[4], const void* row) {
  const int first = emulated::lane() % 4 * 2, col = emulated::lane() / 4;
  load_matrices_as(to, row, [&](const uint16_t* const* rows) {
    return unsigned(rows[first][col]) | unsigned(rows[first + 1][col]) << 16;
  });
}

struct EmulatedCopy {
  void* to;
  const void* from;
  int bytes;
};
struct EmulatedCopies {
  std::vector<EmulatedCopy> started;
  std::vector<std::vector<EmulatedCopy>> groups;  // oldest first
};
// Of the thread of the block that runs.
inline EmulatedCopies& copies_of_thread() {
  static thread_local std::vector<EmulatedCopies> of_threads(1024);
  return of_threads[threadIdx.x];
}
inline void start_copy16(void* shared, const void* from, int bytes = 16) {
  weft::check((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(from)) % 16 == 0,
              "copies of 16 bytes are from and to multiples of it");
  weft::check(bytes >= 0 && bytes <= 16, "{} of 16 bytes are copied", bytes);
  copies_of_thread().started.push_back({shared, from, bytes});
}
inline void end_copy_group() {
  EmulatedCopies& copies = copies_of_thread();
  copies.groups.push_back(std::exchange(copies.started, {}));
}
template <int kPending>
void wait_for_copies() {
  std::vector<std::vector<EmulatedCopy>>& groups = copies_of_thread().groups;
  for (; groups.size() > size_t(kPending); groups.erase(groups.begin()))
    for (const EmulatedCopy& copy : groups.front()) {
      std::memset(copy.to, 0, 16);
      std::memcpy(copy.to, copy.from, size_t(copy.bytes));
    }
}

template <class N>
unsigned pack(float low, float high) {
  if constexpr (std::is_same_v<N, __half>)
    return unsigned(__half_as_ushort(__float2half_rn(low))) | unsigned(__half_as_ushort(__float2half_rn(high))) << 16;
  else
    return unsigned(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
           unsigned(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
}

inline float fast_exp2(float x) { return std::exp2(x); }
inline float fused(float x, float y, float z) { return std::fma(x, y, z); }
inline void forget(int&) {}
inline void forget(const std::byte*&) {}
template <class X>
X of_lane(X x, int lane) {
  return emulated::shuffle(x, lane);
}

// Blocks run one after another.
inline unsigned count_in(unsigned* counter) { return (*counter)++; }
template <class X>
X load_written(const X* p) {
  return *p;
}

}  // namespace weft::cuda
