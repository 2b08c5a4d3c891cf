// Micro-kernels of the matrix product: a tile of up to 12 rows by two vectors, held in registers over a block of K.
#include "weft/kernels/cpu/matmul_kernels.h"

#include <algorithm>

#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/cpu/bf16_pairs.h"
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/matmul_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "weft/kernels/cpu/matmul_epilogue-inl.h"
#include "weft/kernels/cpu/matmul_pack-inl.h"
#include "weft/kernels/cpu/matmul_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// 24 accumulators of 32 registers, or 12 of 16: the rest hold two vectors of b and one broadcast of a.
constexpr int kTileRows = HWY_MAX_BYTES >= 64 ? 12 : 6;

struct DotF32 {
  using A = float;
  static constexpr int kPerStep = 1;  // of A, a row

  template <int kRows, int kVecs>
  static HWY_INLINE void step(const float* b, const float* a, F32 (&acc)[kRows][kVecs]) {
    const F32Tag d;
    F32 column[kVecs];
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) column[j] = hn::LoadU(d, b + size_t(j) * hn::Lanes(d));
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const F32 x = hn::Set(d, a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < kVecs; ++j) acc[i][j] = hn::MulAdd(x, column[j], acc[i][j]);
    }
  }
};

// The products as instructions, which add in place: of its own choice GCC makes sums in other registers and keeps
// some on the stack, which takes half as long again where there are 16.
struct DotBf16AsF32 {
  using A = float;
  static constexpr int kPerStep = 2;

  template <int kRows, int kVecs>
  static HWY_INLINE void step(const float* b, const float* a, F32 (&acc)[kRows][kVecs]) {
    half<0, kRows, kVecs>(b, a, acc);
    half<1, kRows, kVecs>(b, a + kRows, acc);
  }

 private:
  template <int kHalf, int kRows, int kVecs>
  static HWY_INLINE void half(const float* b, const float* a, F32 (&acc)[kRows][kVecs]) {
    const F32Tag d;
    const hn::RebindToUnsigned<F32Tag> d32;
    F32 column[kVecs];
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) {
      const auto pairs = hn::BitCast(d32, hn::LoadU(d, b + size_t(j) * hn::Lanes(d)));
      column[j] = hn::BitCast(d, kHalf == 0 ? hn::ShiftLeft<16>(pairs) : hn::And(pairs, hn::Set(d32, 0xffff0000u)));
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const F32 x = hn::Set(d, a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < kVecs; ++j)
        asm("vfmadd231ps %2, %1, %0" : "+v"(acc[i][j].raw) : "v"(x.raw), "v"(column[j].raw));
    }
  }
};

#if HWY_TARGET == HWY_AVX3
// The machine's bf16 dot product, an extension of this target that is asked for at run time. As an instruction and
// not as an intrinsic, because the compiler inlines no function of one target into one of another.
struct DotBf16Pairs {
  using A = uint32_t;
  static constexpr int kPerStep = 1;

  template <int kRows, int kVecs>
  static HWY_INLINE void step(const float* b, const uint32_t* a, F32 (&acc)[kRows][kVecs]) {
    const hn::ScalableTag<uint32_t> d;
    hn::Vec<decltype(d)> column[kVecs];
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) column[j] = hn::BitCast(d, hn::LoadU(F32Tag(), b + size_t(j) * hn::Lanes(d)));
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto x = hn::Set(d, a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < kVecs; ++j)
        asm("vdpbf16ps %2, %1, %0" : "+v"(acc[i][j].raw) : "v"(x.raw), "v"(column[j].raw));
    }
  }
};
#endif

template <class Dot, int kRows, int kVecs>
HWY_INLINE void tile_body(const TileCall& call) {
  const F32Tag d;
  F32 acc[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) acc[i][j] = hn::Zero(d);
  }
  const auto* a = static_cast<const typename Dot::A*>(call.a);
  const auto* b = static_cast<const float*>(call.b);
  const std::byte* ahead = call.ahead;
  const int64_t ahead_bytes = call.ahead_bytes, steps = call.steps;
  // Each line is asked for once: where it is asked for at every step until it is there, a Zen 3 waits, and products
  // take up to four times as long.
  constexpr int64_t kAtOnce = 128;
  const int64_t group = ahead_bytes > 0 ? std::max<int64_t>(1, kAtOnce / ahead_bytes) : steps;
#pragma GCC unroll 1
  for (int64_t s = 0; s < steps; s += group) {
    __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(ahead + 64, 0, 2);
    ahead += kAtOnce;
    const int64_t count = std::min(group, steps - s);
#pragma GCC unroll 1
    for (int64_t i = 0; i < count; ++i) {
      Dot::template step<kRows, kVecs>(b, a, acc);
      a += Dot::kPerStep * kRows;
      b += kPanelCols;
    }
  }
  const float* add = call.add;
  const int64_t add_stride = call.add_stride, out_stride = call.out_stride;
  float* out = call.out;
  if (add) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kVecs; ++j) {
        acc[i][j] = hn::Add(acc[i][j], hn::LoadU(d, add + i * add_stride + j * int(hn::Lanes(d))));
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) hn::StoreU(acc[i][j], d, out + i * out_stride + j * int(hn::Lanes(d)));
  }
}

template <class Dot, int kRows, int kVecs>
void tile(const TileCall& call) {
  tile_body<Dot, kRows, kVecs>(call);
}

struct TileTable {
  TileKernel kernels[kTileRows * 2] = {};
};

template <class Dot, int... kIndex>
constexpr TileTable make_table(std::integer_sequence<int, kIndex...>) {
  return {{&tile<Dot, kIndex / 2 + 1, kIndex % 2 + 1>...}};
}

template <class Dot>
constexpr TileTable kTiles = make_table<Dot>(std::make_integer_sequence<int, 2 * kTileRows>());

const TileKernel* tiles(DotKind kind) {
#if HWY_TARGET == HWY_AVX3
  if (kind == DotKind::bf16_pairs) return kTiles<DotBf16Pairs>.kernels;
  if (kind == DotKind::bf16_tiles) return kRegisterTiles.kernels;
#endif
  return kind == DotKind::bf16_as_f32 ? kTiles<DotBf16AsF32>.kernels : kTiles<DotF32>.kernels;
}

inline int tile_rows([[maybe_unused]] DotKind kind) {
#if HWY_TARGET == HWY_AVX3
  if (kind == DotKind::bf16_tiles) return kRegisterTileRows;
#endif
  return kTileRows;
}

constexpr MatmulKernels kKernels{.tile_rows = tile_rows,
                                 .vector_cols = HWY_MAX_BYTES / 4,
                                 .bf16_kind = DotKind::bf16_as_f32,
                                 .tiles = tiles,
                                 .epilogue = choose_epilogue,
                                 .pack_a = pack_a,
                                 .pack_panel = pack_panel};

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

bool can_use(MatmulIsa isa) {
#if HWY_TARGETS & HWY_AVX3
  const bool has_avx512 = hwy::SupportedTargets() & HWY_AVX3;
#else
  const bool has_avx512 = false;
#endif
  switch (isa) {
    case MatmulIsa::avx2: return true;
    case MatmulIsa::avx512: return has_avx512;
    case MatmulIsa::avx512_bf16: return has_avx512 && has_bf16_pairs();
    case MatmulIsa::amx: return has_avx512 && amx::can_use();
  }
  return false;
}

// Asking the processor takes tens of microseconds in a virtual machine: it is done once.
MatmulIsa best_matmul_isa() {
  static const MatmulIsa best = [] {
    if (can_use(MatmulIsa::amx)) return MatmulIsa::amx;
    if (can_use(MatmulIsa::avx512_bf16) && are_bf16_pairs_fast()) return MatmulIsa::avx512_bf16;
    return can_use(MatmulIsa::avx512) ? MatmulIsa::avx512 : MatmulIsa::avx2;
  }();
  return best;
}

const MatmulKernels& matmul_kernels([[maybe_unused]] MatmulIsa isa) {
#if HWY_TARGETS & HWY_AVX3
  static constexpr auto with = [](DotKind bf16_kind) {
    MatmulKernels kernels = N_AVX3::kKernels;
    kernels.bf16_kind = bf16_kind;
    return kernels;
  };
  static constexpr MatmulKernels with_pairs = with(DotKind::bf16_pairs), with_tiles = with(DotKind::bf16_tiles);
  if (isa == MatmulIsa::amx) return with_tiles;
  if (isa == MatmulIsa::avx512_bf16) return with_pairs;
  if (isa == MatmulIsa::avx512) return N_AVX3::kKernels;
#endif
  return N_AVX2::kKernels;
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
