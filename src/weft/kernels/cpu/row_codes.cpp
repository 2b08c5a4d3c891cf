// Rows of keys and values as codes of 8 bits, each head's vector with a scale.
#include <cstring>

#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/row_codes.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

using I32Tag = hn::ScalableTag<int32_t>;
using I32 = hn::Vec<I32Tag>;

// The largest magnitude; infinities and then NaNs are larger than numbers, as their bits are.
template <class T>
float largest_of(const T* x, int64_t dim) {
  const F32Tag f;
  const I32Tag d;
  I32 most = hn::Zero(d);
  for_each_vector(dim, [&](int64_t i, auto part)
                           HWY_ATTR { most = hn::Max(most, hn::BitCast(d, hn::Abs(load(f, x + i, part)))); });
  return hn::GetLane(hn::BitCast(f, hn::MaxOfLanes(d, most)));
}

// To the nearest code, ties to even. What comes is at most the largest code, but for a rounding.
struct ToInt8 {
  static HWY_INLINE I32 code(F32 x) { return hn::NearestInt(x); }
};

struct ToFp8 {
  static HWY_INLINE I32 code(F32 x) {
    const F32Tag f;
    const I32Tag d;
    const F32 magnitude = hn::Abs(x);
    const I32 bits = hn::BitCast(d, magnitude);
    // Exponents count from 2^-7 and not from 2^-127; below 2^-6 codes are multiples of 2^-9.
    const I32 odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(d, 1));
    const I32 normal =
        hn::Sub(hn::ShiftRight<20>(hn::Add(hn::Add(bits, hn::Set(d, 0x7ffff)), odd)), hn::Set(d, 120 << 3));
    const I32 small = hn::NearestInt(hn::Mul(magnitude, hn::Set(f, 0x1p9f)));
    const auto is_small = hn::RebindMask(d, hn::Lt(magnitude, hn::Set(f, 0x1p-6f)));
    const I32 sign = hn::And(hn::ShiftRight<24>(hn::BitCast(d, x)), hn::Set(d, 0x80));
    return hn::Or(sign, hn::IfThenElse(is_small, small, normal));
  }
};

HWY_INLINE void store_codes(I32 codes, uint8_t* to, Whole) {
  hn::StoreU(hn::TruncateTo(hn::Rebind<uint8_t, I32Tag>(), hn::BitCast(hn::ScalableTag<uint32_t>(), codes)),
             hn::Rebind<uint8_t, I32Tag>(), to);
}

HWY_INLINE void store_codes(I32 codes, uint8_t* to, First first) {
  uint8_t all[hn::MaxLanes(I32Tag())];
  store_codes(codes, all, Whole{});
  std::memcpy(to, all, first.n);
}

template <class To, class T>
void round_vector(const T* x, int64_t dim, float most, uint8_t* to) {
  const F32Tag f;
  const CodeScale scale(largest_of(x, dim), most);
  if (scale.inverse == 0)
    std::memset(to, 0, size_t(dim));
  else
    for_each_vector(dim, [&](int64_t i, auto part) HWY_ATTR {
      store_codes(To::code(hn::Mul(load(f, x + i, part), hn::Set(f, scale.inverse))), to + i, part);
    });
  std::memcpy(to + dim, &scale.value, sizeof(scale.value));
}

void place_codes(Stream& stream, const PlaceRowsArgs& args) {
  const Tensor &pool = args.pool, &x = args.x;
  const int32_t* const rows = args.rows;
  const RowCodes codes = args.codes;
  with_dtype("place_rows", x, [&](auto element) {
    using T = decltype(element);
    const int64_t dim = x.cols(), heads = x.numel() / x.dim(0) / dim, width = row_width(codes, dim);
    const auto place = [&](auto to, int64_t begin, int64_t end) {
      for (int64_t i = begin * heads; i < end * heads; ++i)
        round_vector<decltype(to)>(x.data<T>() + i * dim, dim, most_of(codes),
                                   pool.data<uint8_t>() + (rows[i / heads] * heads + i % heads) * width);
    };
    const auto body = [&](int64_t begin, int64_t end, int) {
      codes == RowCodes::int8 ? place(ToInt8(), begin, end) : place(ToFp8(), begin, end);
    };
    stream.team().parallel_for(x.dim(0), rows_per_chunk(heads * (width + dim * int64_t(sizeof(T)))), body);
  });
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(place_codes);

void place_codes(Stream& stream, const PlaceRowsArgs& args) { HWY_DYNAMIC_DISPATCH(place_codes)(stream, args); }

}  // namespace weft::cpu
#endif
