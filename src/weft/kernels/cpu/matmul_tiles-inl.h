// Tiles of bf16 products in tile registers: 32 rows by two vectors of columns, four registers of sums.
#include <array>
#include <cstring>

#include "hwy/highway.h"
#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/cpu/matmul_kernels.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_TILES_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_TILES_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_TILES_INL_H_
#endif

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int kRegisterTileRows = 2 * amx::kRows;
static_assert(kRegisterTileRows <= kMaxTileRows);

template <int kRows>
constexpr amx::Shapes kShapesOf = amx::product_shapes(kRows, amx::kRowBytes);

// Sixteen steps: a [rows][16 words], b with its rows `stride` bytes apart.
template <bool kHasLower, int kVecs>
HWY_INLINE void multiply_registers(const std::byte* a, const std::byte* b, int64_t stride) {
  amx::load<6>(b, stride);
  amx::load<4>(a, amx::kRowBytes);
  amx::dot_bf16<0, 4, 6>();
  if constexpr (kVecs == 2) {
    amx::load<7>(b + amx::kRowBytes, stride);
    amx::dot_bf16<1, 4, 7>();
  }
  if constexpr (kHasLower) {
    amx::load<5>(a + amx::kTileBytes, amx::kRowBytes);
    amx::dot_bf16<2, 5, 6>();
    if constexpr (kVecs == 2) amx::dot_bf16<3, 5, 7>();
  }
}

template <int kRows, int kVecs>
void register_tile(const TileCall& call) {
  constexpr bool kHasLower = kRows > amx::kRows;
  constexpr int64_t kStepBytes = kPanelCols * 4, kStepsTogether = amx::kRowBytes / 4;
  amx::use(kShapesOf<kRows>);
  const int64_t add_bytes = call.add_stride * 4, out_bytes = call.out_stride * 4;
  if (call.add) {
    amx::load<0>(call.add, add_bytes);
    if constexpr (kVecs == 2) amx::load<1>(call.add + 16, add_bytes);
    if constexpr (kHasLower) amx::load<2>(call.add + amx::kRows * call.add_stride, add_bytes);
    if constexpr (kHasLower && kVecs == 2) amx::load<3>(call.add + amx::kRows * call.add_stride + 16, add_bytes);
  } else {
    amx::zero<0>();
    if constexpr (kVecs == 2) amx::zero<1>();
    if constexpr (kHasLower) amx::zero<2>();
    if constexpr (kHasLower && kVecs == 2) amx::zero<3>();
  }
  const auto* a = static_cast<const std::byte*>(call.a);
  const auto* b = static_cast<const std::byte*>(call.b);
  const std::byte* ahead = call.ahead;
  int64_t left = call.steps;
  for (; left >= kStepsTogether; left -= kStepsTogether) {
    for (int64_t at = 0; at < call.ahead_bytes * kStepsTogether; at += 64) __builtin_prefetch(ahead + at, 0, 2);
    ahead += call.ahead_bytes * kStepsTogether;
    multiply_registers<kHasLower, kVecs>(a, b, kStepBytes);
    a += kRows * amx::kRowBytes;
    b += kStepsTogether * kStepBytes;
  }
  if (left > 0) {  // what lies behind the panel may be NaN, which zeros of a do not silence
    alignas(64) std::byte last[kStepsTogether * kStepBytes] = {};
    std::memcpy(last, b, size_t((left - 1) * kStepBytes + kVecs * amx::kRowBytes));
    multiply_registers<kHasLower, kVecs>(a, last, kStepBytes);
  }
  amx::store<0>(call.out, out_bytes);
  if constexpr (kVecs == 2) amx::store<1>(call.out + 16, out_bytes);
  if constexpr (kHasLower) amx::store<2>(call.out + amx::kRows * call.out_stride, out_bytes);
  if constexpr (kHasLower && kVecs == 2) amx::store<3>(call.out + amx::kRows * call.out_stride + 16, out_bytes);
}

struct RegisterTileTable {
  TileKernel kernels[kRegisterTileRows * 2] = {};
};

template <int... kIndex>
constexpr RegisterTileTable make_register_tiles(std::integer_sequence<int, kIndex...>) {
  return {{&register_tile<kIndex / 2 + 1, kIndex % 2 + 1>...}};
}

constexpr RegisterTileTable kRegisterTiles =
    make_register_tiles(std::make_integer_sequence<int, 2 * kRegisterTileRows>());

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
