// Epilogues of the matrix product: what happens to a tile of the result while it is in the L1 cache.
#include "hwy/highway.h"
#include "weft/kernels/cpu/matmul_kernels.h"
#include "weft/kernels/cpu/simd_math-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_EPILOGUE_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_EPILOGUE_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_EPILOGUE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Up to one vector of columns: `count` lanes are real.
struct Lane {
  int64_t at;  // element index
  size_t count;
  bool full;
};

template <class T>
HWY_INLINE F32 load_as(const EpilogueOperand& operand, Lane lane) {
  const F32Tag d;
  const auto* p = reinterpret_cast<const T*>(operand.data) + lane.at;
  return lane.full ? load(d, p) : load_first(d, p, lane.count);
}

HWY_INLINE F32 load(const EpilogueOperand& operand, Lane lane) {
  if (operand.type == DType::f32) return load_as<float>(operand, lane);
  if (operand.type == DType::bf16) return load_as<BFloat16>(operand, lane);
  return load_as<Float16>(operand, lane);
}

template <class T>
HWY_INLINE void store_as(F32 x, const EpilogueOperand& operand, Lane lane) {
  const F32Tag d;
  auto* p = reinterpret_cast<T*>(operand.data) + lane.at;
  lane.full ? store(x, d, p) : store_first(x, d, p, lane.count);
}

HWY_INLINE void store(F32 x, const EpilogueOperand& operand, Lane lane) {
  if (operand.type == DType::f32) return store_as<float>(x, operand, lane);
  if (operand.type == DType::bf16) return store_as<BFloat16>(x, operand, lane);
  store_as<Float16>(x, operand, lane);
}

// y is ab + bias.
template <Epilogue::Kind kKind, Activation kF>
HWY_INLINE void apply_to_vector(const EpilogueCall& call, F32 y, Lane lane) {
  const F32Tag d;
  using Kind = Epilogue::Kind;
  F32 value, derivative;
  if constexpr (kKind == Kind::none) {
    if (call.accumulate) y = hn::Add(load(call.y, lane), y);
  } else if constexpr (kKind == Kind::activate) {
    store(activate<kF>(d, y), call.act, lane);
  } else if constexpr (kKind == Kind::gated) {
    store(hn::Mul(activate<kF>(d, load(call.gate, lane)), gating_up<kF>(d, y)), call.act, lane);
  } else if constexpr (kKind == Kind::activate_backward) {
    activate<kF>(d, load(call.pre, lane), value, derivative);
    y = hn::Mul(y, derivative);
  } else {
    activate<kF>(d, load(call.gate, lane), value, derivative);
    const F32 up = load(call.up, lane);
    store(hn::Mul(hn::Mul(y, gating_up<kF>(d, up)), derivative), call.dgate, lane);
    y = gating_gradient<kF>(d, up, hn::Mul(y, value));
  }
  store(y, call.y, lane);
}

template <Epilogue::Kind kKind, Activation kF>
void apply_epilogue(const EpilogueCall& call, const float* tile, int64_t row, int64_t col, int rows, int cols) {
  const F32Tag d;
  const int lanes = int(hn::Lanes(d));
  for (int c = 0; c < cols; c += lanes) {
    const size_t count = size_t(std::min(lanes, cols - c));
    const bool full = count == size_t(lanes);
    const F32 bias = call.bias.data ? load(call.bias, {col + c, count, full}) : hn::Zero(d);
    for (int r = 0; r < rows; ++r) {
      const Lane lane{(row + r) * call.n + col + c, count, full};
      apply_to_vector<kKind, kF>(call, hn::Add(hn::LoadU(d, tile + r * kPanelCols + c), bias), lane);
    }
  }
}

inline EpilogueKernel choose_epilogue(Epilogue::Kind kind, Activation f) {
  using Kind = Epilogue::Kind;
  EpilogueKernel chosen = apply_epilogue<Kind::none, Activation::relu>;
  if (kind == Kind::none) return chosen;
  with_activation(f, [&](auto activation) {
    constexpr Activation kF = decltype(activation)::value;
    switch (kind) {
      case Kind::none: break;
      case Kind::activate: chosen = apply_epilogue<Kind::activate, kF>; break;
      case Kind::gated: chosen = apply_epilogue<Kind::gated, kF>; break;
      case Kind::activate_backward: chosen = apply_epilogue<Kind::activate_backward, kF>; break;
      case Kind::gated_backward: chosen = apply_epilogue<Kind::gated_backward, kF>; break;
    }
  });
  return chosen;
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
