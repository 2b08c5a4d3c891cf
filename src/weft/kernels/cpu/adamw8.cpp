// AdamW with moments of 8 bits, and their codes: block by block, in registers and the first cache.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/adamw8.cpp"
#include <cstring>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/block_codes.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/masters-inl.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

using block_codes::kBlock;
using CodeTag = hn::Rebind<uint8_t, F32Tag>;
using IntTag = hn::Rebind<int32_t, F32Tag>;

// A block of numbers; elements behind the end of the tensor are zeros.
struct Block {
  alignas(64) float x[kBlock];
  alignas(64) uint8_t codes[kBlock];

  void decode(const uint8_t* from, float scale, int64_t n, bool is_signed) {
    std::memset(codes + n, 0, size_t(kBlock - n));
    std::memcpy(codes, from, size_t(n));
    const float* const table = block_codes::table(is_signed).data();
    const F32Tag d;
    const auto factor = hn::Set(d, scale);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto index = hn::PromoteTo(IntTag(), hn::LoadU(CodeTag(), codes + i));
      hn::StoreU(hn::Mul(hn::GatherIndex(d, table, index), factor), d, x + i);
    }
  }

  // Returns the scale.
  float encode(uint8_t* to, int64_t n, bool is_signed) {
    const F32Tag d;
    auto largest = hn::Zero(d);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) largest = hn::Max(largest, hn::Abs(hn::LoadU(d, x + i)));
    const float scale = hn::GetLane(hn::MaxOfLanes(d, largest)), inverse = block_codes::inverse_of(scale);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto code = code_of(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse)), is_signed);
      hn::StoreU(hn::DemoteTo(CodeTag(), code), CodeTag(), codes + i);
    }
    std::memcpy(to, codes, size_t(n));
    return inverse > 0 ? scale : 0;
  }

  // block_codes::encode of every lane.
  static hn::Vec<IntTag> code_of(F32 x, bool is_signed) {
    const F32Tag d;
    const IntTag di;
    const auto y = hn::Mul(hn::Abs(x), hn::Set(d, float(block_codes::top(is_signed))));
    constexpr int kLast = block_codes::kDecades - 1;
    auto factor = hn::Set(d, 1.0f), n = hn::Set(d, float(block_codes::intervals(kLast, is_signed)));
    auto first = hn::Set(di, block_codes::first_code(kLast, is_signed));
    for (int decade = kLast - 1; decade >= 0; --decade) {
      const auto below = hn::Lt(y, hn::Set(d, block_codes::kEnds[size_t(decade)]));
      factor = hn::IfThenElse(below, hn::Set(d, block_codes::kFactors[size_t(decade)]), factor);
      n = hn::IfThenElse(below, hn::Set(d, float(block_codes::intervals(decade, is_signed))), n);
      const auto code = hn::Set(di, block_codes::first_code(decade, is_signed));
      first = hn::IfThenElse(hn::RebindMask(di, below), code, first);
    }
    const auto place = hn::Mul(hn::Sub(hn::Mul(y, factor), hn::Set(d, 0.1f)), hn::Mul(n, hn::Set(d, float(1 / 0.9))));
    const auto inside = hn::Min(hn::Max(place, hn::Zero(d)), hn::Sub(n, hn::Set(d, 1.0f)));
    auto code = hn::Add(first, hn::ConvertTo(di, inside));
    if (is_signed)
      code = hn::IfThenElse(hn::RebindMask(di, hn::Lt(x, hn::Zero(d))), hn::Add(code, hn::Set(di, 128)), code);
    const auto is_zero = is_signed ? hn::Lt(y, hn::Set(d, block_codes::kLeast)) : hn::Eq(y, hn::Zero(d));
    return hn::IfThenZeroElse(hn::RebindMask(di, is_zero), code);
  }
};

// G: f32, or the type of the masters' value.
template <class Masters, class G>
void adamw8_block(const AdamW8Args& args, const Masters& masters, const G* all_grads, int64_t begin, int64_t n) {
  const AdamWArgs& a = args.adamw;
  const F32Tag d;
  const auto grad_scale = hn::Set(d, a.grad_scale), beta1 = hn::Set(d, a.beta1), beta2 = hn::Set(d, a.beta2);
  const auto rest1 = hn::Set(d, float(1 - double(a.beta1))), rest2 = hn::Set(d, float(1 - double(a.beta2)));
  const auto correct1 = hn::Set(d, float(1 / double(a.bias_correction1)));
  const auto correct2 = hn::Set(d, float(1 / double(a.bias_correction2)));
  const auto eps = hn::Set(d, a.eps), lr = hn::Set(d, a.lr), decay = hn::Set(d, a.weight_decay);
  float *const m_scale = args.m_scale.data<float>() + begin / kBlock, *const v_scale =
                                                                          args.v_scale.data<float>() + begin / kBlock;
  uint8_t *const m_codes = args.m.data<uint8_t>() + begin, *const v_codes = args.v.data<uint8_t>() + begin;
  const G* const grad = all_grads + begin;
  Block m, v;
  m.decode(m_codes, *m_scale, n, true);
  v.decode(v_codes, *v_scale, n, false);
  for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(load(d, grad + i, part), grad_scale);
    const auto new_m = hn::MulAdd(beta1, load(d, m.x + i, part), hn::Mul(rest1, g));
    const auto new_v = hn::MulAdd(beta2, load(d, v.x + i, part), hn::Mul(rest2, hn::Mul(g, g)));
    store(new_m, d, m.x + i, part);
    store(new_v, d, v.x + i, part);
    const auto size = hn::Add(hn::Sqrt(hn::Mul(new_v, correct2)), eps);
    const auto update = hn::Div(hn::Mul(new_m, correct1), size);
    const auto old = masters.load_at(begin + i, part);
    masters.store_at(begin + i, hn::NegMulAdd(lr, hn::MulAdd(decay, old, update), old), part);
  });
  *m_scale = m.encode(m_codes, n, true);
  *v_scale = v.encode(v_codes, n, false);
}

// Calls body(begin, n) for every block of [0, count).
template <class Body>
void each_block(Stream& stream, int64_t count, Body&& body) {
  stream.team().parallel_for(count, elements_per_chunk(4 * 4) / kBlock * kBlock,
                             [&](int64_t begin, int64_t end, int) {
                               for (; begin < end; begin += kBlock)
                                 body(begin, std::min<int64_t>(kBlock, end - begin));
                             });
}

void adamw8(Stream& stream, const AdamW8Args& args) {
  with_master("adamw8", args.adamw, [&](const auto& masters) {
    with_gradient(masters, args.adamw.grad, [&](const auto* grad) {
      each_block(stream, args.m.numel(),
                 [&](int64_t begin, int64_t n) { adamw8_block(args, masters, grad, begin, n); });
    });
  });
}

void encode_blocks(Stream& stream, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed) {
  each_block(stream, x.numel(), [&](int64_t begin, int64_t n) {
    Block block{};
    std::memcpy(block.x, x.data<float>() + begin, size_t(n) * sizeof(float));
    scales.data<float>()[begin / kBlock] = block.encode(codes.data<uint8_t>() + begin, n, is_signed);
  });
}

void decode_blocks(Stream& stream, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  each_block(stream, x.numel(), [&](int64_t begin, int64_t n) {
    Block block;
    block.decode(codes.data<uint8_t>() + begin, scales.data<float>()[begin / kBlock], n, is_signed);
    std::memcpy(x.data<float>() + begin, block.x, size_t(n) * sizeof(float));
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(adamw8);
HWY_EXPORT(encode_blocks);
HWY_EXPORT(decode_blocks);

void adamw8(Stream& stream, const AdamW8Args& args) {
  shapes::check_adamw8(args);
  HWY_DYNAMIC_DISPATCH(adamw8)(stream, args);
}

void encode_blocks(Stream& stream, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed) {
  shapes::check_blocks("encode_blocks", codes, scales, x);
  HWY_DYNAMIC_DISPATCH(encode_blocks)(stream, codes, scales, x, is_signed);
}

void decode_blocks(Stream& stream, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  shapes::check_blocks("decode_blocks", codes, scales, x);
  HWY_DYNAMIC_DISPATCH(decode_blocks)(stream, x, codes, scales, is_signed);
}

}  // namespace weft::cpu
#endif
