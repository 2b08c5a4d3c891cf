// Rotary position embedding in place; as fast as memory, since a token's cosines serve all of its heads from L1.
#include "weft/kernels/cpu/attention_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "weft/kernels/cpu/attention_rows-inl.h"
#include "weft/kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

// Turns the halves of one head, `half` elements each. factor: of cosines; turn: of sines.
template <class E>
HWY_INLINE void rotate_head(E* x, const float* cos, const float* sin, int64_t half, V factor, V turn) {
  for_each_vector<FloatWords>(half, [&](int64_t e, auto tail) HWY_ATTR {
    const V c = hn::Mul(factor, load_words<FloatWords, tail.value>(cos, e, half)),
            s = hn::Mul(turn, load_words<FloatWords, tail.value>(sin, e, half));
    const V x1 = load_words<FloatWords, tail.value>(x, e, half);
    const V x2 = load_words<FloatWords, tail.value>(x + half, e, half);
    store_floats<tail.value>(x, e, half, hn::MulSub(x1, c, hn::Mul(x2, s)));
    store_floats<tail.value>(x + half, e, half, hn::MulAdd(x2, c, hn::Mul(x1, s)));
  });
}

// What of a head does not turn.
template <class E>
HWY_INLINE void scale_rest(E* x, int64_t size, V factor) {
  for_each_vector<FloatWords>(size, [&](int64_t e, auto tail) HWY_ATTR {
    store_floats<tail.value>(x, e, size, hn::Mul(factor, load_words<FloatWords, tail.value>(x, e, size)));
  });
}

template <class E>
HWY_NOINLINE void rotate_rows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t heads = args.x.dim(1), dim = args.x.dim(2), half = args.cos.dim(1);
  const float *cos = args.cos.data<float>(), *sin = args.sin.data<float>();
  const float* const factors = args.factors ? args.factors.data<float>() : nullptr;
  E* x = args.x.data<E>() + begin * heads * dim;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = args.positions[t] * half;
    const V factor = hn::Set(df, factors ? factors[args.positions[t]] : 1.0f);
    const V turn = args.inverse ? hn::Neg(factor) : factor;
    for (int64_t h = 0; h < heads; ++h, x += dim) {
      rotate_head(x, cos + at, sin + at, half, factor, turn);
      if (factors) scale_rest(x + 2 * half, dim - 2 * half, factor);
    }
  }
}

void rotate(Stream& stream, const RopeArgs& args) {
  constexpr int64_t kChunk = 16384;  // elements: enough to be worth handing to a worker
  const int64_t grain = std::max<int64_t>(kChunk / std::max<int64_t>(args.x.dim(1) * args.x.dim(2), 1), 1);
  stream.team().parallel_for(args.x.dim(0), grain, [&](int64_t begin, int64_t end, int) {
    if (args.x.dtype() == DType::f32) {
      rotate_rows<float>(args, begin, end);
    } else if (args.x.dtype() == DType::f16) {
      rotate_rows<Float16>(args, begin, end);
    } else {
      rotate_rows<BFloat16>(args, begin, end);
    }
  });
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(rotate);

void rope(Stream& stream, const RopeArgs& args) {
  const DType type = args.x.dtype();
  check(type == DType::f32 || type == DType::bf16 || type == DType::f16,
        "rope on the CPU takes f32, bf16 or f16, not {}", name_of(type));
  check(args.x.shape().rank() == 3 && args.cos.shape().rank() == 2 && args.cos.shape() == args.sin.shape() &&
            2 * args.cos.dim(1) <= args.x.dim(2),
        "rope: tables of {} and {} do not fit x of {}", args.cos.shape(), args.sin.shape(), args.x.shape());
  check(!args.factors || args.factors.numel() == args.cos.dim(0), "rope: {} factors for {} positions",
        args.factors.numel(), args.cos.dim(0));
  for (int64_t t = 0; t < args.x.dim(0); ++t) {
    check(args.positions[t] >= 0 && args.positions[t] < args.cos.dim(0), "rope: position {} of {}", args.positions[t],
          args.cos.dim(0));
  }
  HWY_DYNAMIC_DISPATCH(rotate)(stream, args);
}

}  // namespace weft::cpu
#endif
