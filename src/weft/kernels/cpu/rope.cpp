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

// Turns the halves of one head, `half` elements each.
template <class E>
HWY_INLINE void rotate_head(E* x, const float* cos, const float* sin, int64_t half, V sign) {
  for_each_vector<FloatWords>(half, [&](int64_t e, auto tail) HWY_ATTR {
    const V c = load_words<FloatWords, tail.value>(cos, e, half),
            s = load_words<FloatWords, tail.value>(sin, e, half);
    const V x1 = load_words<FloatWords, tail.value>(x, e, half), turn = hn::Mul(sign, s);
    const V x2 = load_words<FloatWords, tail.value>(x + half, e, half);
    store_floats<tail.value>(x, e, half, hn::MulSub(x1, c, hn::Mul(x2, turn)));
    store_floats<tail.value>(x + half, e, half, hn::MulAdd(x2, c, hn::Mul(x1, turn)));
  });
}

template <class E>
HWY_NOINLINE void rotate_rows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t heads = args.x.dim(1), dim = args.x.dim(2), half = args.cos.dim(1);
  const V sign = hn::Set(df, args.inverse ? -1.0f : 1.0f);
  const float *cos = args.cos.data<float>(), *sin = args.sin.data<float>();
  E* x = args.x.data<E>() + begin * heads * dim;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = args.positions[t] * half;
    for (int64_t h = 0; h < heads; ++h, x += dim) rotate_head(x, cos + at, sin + at, half, sign);
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
  for (int64_t t = 0; t < args.x.dim(0); ++t) {
    check(args.positions[t] >= 0 && args.positions[t] < args.cos.dim(0), "rope: position {} of {}", args.positions[t],
          args.cos.dim(0));
  }
  HWY_DYNAMIC_DISPATCH(rotate)(stream, args);
}

}  // namespace weft::cpu
#endif
