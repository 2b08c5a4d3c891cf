// Heads of which the first elements are shared by all of a token, and heads one by one: copies, and a sum over heads.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/heads.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Sums in f32 and rounds once.
template <class T>
void sum_heads(T* sum, const T* rows, int64_t heads, int64_t stride, int64_t count) {
  const F32Tag d;
  for_each_vector(count, [&](int64_t e, auto part) HWY_ATTR {
    auto total = load(d, rows + e, part);
    for (int64_t h = 1; h < heads; ++h) total = hn::Add(total, load(d, rows + h * stride + e, part));
    store(total, d, sum + e, part);
  });
}

void split_heads(Stream& stream, const Tensor& dshared, const Tensor& down, const Tensor& dy) {
  const int64_t heads = down.dim(1), a = dshared.dim(1), b = down.dim(2), dim = a + b;
  with_dtype("split_heads", dy, [&](auto element) {
    using T = decltype(element);
    const int64_t grain = rows_per_chunk(2 * heads * dim * int64_t(sizeof(T)));
    stream.team().parallel_for(dy.dim(0), grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const T* rows = dy.data<T>() + t * heads * dim;
        if (heads > 0) sum_heads(dshared.data<T>() + t * a, rows, heads, dim, a);
        if (heads == 0) std::fill_n(dshared.data<T>() + t * a, a, T());
        for (int64_t h = 0; h < heads; ++h) std::copy_n(rows + h * dim + a, b, down.data<T>() + (t * heads + h) * b);
      }
    });
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(split_heads);

void join_heads(Stream& stream, const Tensor& y, const Tensor& shared, const Tensor& own) {
  shapes::check_join_heads("join_heads", y, shared, own);
  const int64_t heads = own.dim(1);
  const size_t element = size_of(y.dtype()), a = size_t(shared.dim(1)) * element, b = size_t(own.dim(2)) * element;
  auto* const out = static_cast<std::byte*>(y.raw());
  const auto *const first = static_cast<const std::byte*>(shared.raw()), *const rest =
                                                                             static_cast<const std::byte*>(own.raw());
  stream.team().parallel_for(y.dim(0), rows_per_chunk(2 * heads * int64_t(a + b)),
                             [&](int64_t begin, int64_t end, int) {
                               for (int64_t row = begin * heads; row < end * heads; ++row) {
                                 std::memcpy(out + size_t(row) * (a + b), first + size_t(row / heads) * a, a);
                                 std::memcpy(out + size_t(row) * (a + b) + a, rest + size_t(row) * b, b);
                               }
                             });
}

namespace {

// Calls copy(bytes into [T, N, W], bytes into [N, T, D], bytes) for every head of every token.
void each_part(Stream& stream, const Tensor& by_token, const Tensor& by_head, int64_t first, auto&& copy) {
  const int64_t tokens = by_token.dim(0), heads = by_token.dim(1);
  const size_t element = size_of(by_token.dtype()), width = size_t(by_token.dim(2)) * element,
               part = size_t(by_head.dim(2)) * element, at = size_t(first) * element;
  stream.team().parallel_for(tokens, rows_per_chunk(2 * heads * int64_t(part)), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < heads; ++h)
        copy(size_t(t * heads + h) * width + at, size_t(h * tokens + t) * part, part);
  });
}

}  // namespace

void take_heads(Stream& stream, const Tensor& y, const Tensor& x, int64_t first) {
  shapes::check_part_of_heads("take_heads", x, y, first);
  auto* const to = static_cast<std::byte*>(y.raw());
  const auto* const from = static_cast<const std::byte*>(x.raw());
  each_part(stream, x, y, first, [&](size_t in_token, size_t in_head, size_t bytes) {
    std::memcpy(to + in_head, from + in_token, bytes);
  });
}

void put_heads(Stream& stream, const Tensor& y, const Tensor& x, int64_t first) {
  shapes::check_part_of_heads("put_heads", y, x, first);
  auto* const to = static_cast<std::byte*>(y.raw());
  const auto* const from = static_cast<const std::byte*>(x.raw());
  each_part(stream, y, x, first, [&](size_t in_token, size_t in_head, size_t bytes) {
    std::memcpy(to + in_token, from + in_head, bytes);
  });
}

void split_heads(Stream& stream, const Tensor& dshared, const Tensor& down, const Tensor& dy) {
  shapes::check_join_heads("split_heads", dy, dshared, down);
  HWY_DYNAMIC_DISPATCH(split_heads)(stream, dshared, down, dy);
}

}  // namespace weft::cpu
#endif
