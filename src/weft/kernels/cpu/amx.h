// Intel's Advanced Matrix Extensions: eight tile registers of 16 rows of 64 bytes, and products of two of them.
//
// As instructions and not as intrinsics, because the compiler inlines no function of one target into one of another.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft::cpu::amx {

inline constexpr int kRows = 16, kRowBytes = 64, kTileBytes = kRows * kRowBytes;

// Whether this machine has tiles with products of bf16 and of int8, and the system lets this process use them: asked
// for once, for all its threads.
bool can_use();

// What LDTILECFG reads: how many rows and bytes of a row each register has.
struct alignas(64) Shapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  constexpr void set(int tile, int tile_rows, int bytes) {
    rows[tile] = uint8_t(tile_rows), row_bytes[tile] = uint16_t(bytes);
  }
};
static_assert(sizeof(Shapes) == 64);

// Of a product of up to 32 rows: registers 0 to 3 hold sums [upper or lower rows][columns], 4 and 5 rows of a, of
// `a_bytes` each, 6 and 7 columns of b. With 16 rows at most, the lower ones are as the upper.
constexpr Shapes product_shapes(int num_rows, int a_bytes) {
  Shapes shapes;
  const int upper = num_rows < kRows ? num_rows : kRows, lower = num_rows > kRows ? num_rows - kRows : upper;
  for (int v = 0; v < 2; ++v) {
    shapes.set(v, upper, kRowBytes);
    shapes.set(2 + v, lower, kRowBytes);
    shapes.set(6 + v, a_bytes / 4, kRowBytes);
  }
  shapes.set(4, upper, a_bytes);
  shapes.set(5, lower, a_bytes);
  return shapes;
}

#if defined(__x86_64__)

inline constinit thread_local const Shapes* in_use = nullptr;

// Gives the registers these shapes, which takes as long as some products: only where they have others.
inline void use(const Shapes& shapes) {
  if (in_use == &shapes) return;
  asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
  in_use = &shapes;
}

// Gives the registers back: a thread without contents there is switched sooner.
inline void release() {
  if (!in_use) return;
  asm volatile("tilerelease" : : : "memory");
  in_use = nullptr;
}

template <int kTile>
[[gnu::always_inline]] inline void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

template <int kTile>
[[gnu::always_inline]] inline void load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
[[gnu::always_inline]] inline void store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}

// c += a b: c [M][N] of f32, a [M][K/2] of pairs of bf16, b [K/2][N] of pairs.
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// c += a b: c [M][N] of i32, a [M][K/4] of four i8, b [K/4][N] of four.
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void dot_int8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

#else

inline void release() {}

#endif

}  // namespace weft::cpu::amx
