// Partial results: attention over some keys joined to attention over others or to sinks, and sums kept wider than
// what they add.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/partial_results.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// y = keep y + take x
template <class T>
HWY_INLINE void mix(float* y, float keep, const T* x, float take, int64_t n) {
  const F32Tag d;
  const auto keeps = hn::Set(d, keep), takes = hn::Set(d, take);
  for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto mixed = hn::MulAdd(load(d, y + i, part), keeps, hn::Mul(load(d, x + i, part), takes));
    store(mixed, d, y + i, part);
  });
}

template <class T>
void merge_rows(const Tensor& acc, const Tensor& acc_lse, const Tensor& part, const Tensor& part_lse, int64_t begin,
                int64_t end) {
  const int64_t tokens = part.dim(0), heads = part.dim(1), dim = part.dim(2);
  const float* there = part_lse.data<float>();
  float* here = acc_lse.data<float>();
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = head * tokens + t, row = (t * heads + head) * dim;
      if (there[at] == -HUGE_VALF) continue;
      const float high = std::max(here[at], there[at]), low = std::min(here[at], there[at]);
      const float all = high + std::log1p(std::exp(low - high));
      mix(acc.data<float>() + row, std::exp(here[at] - all), part.data<T>() + row, std::exp(there[at] - all), dim);
      here[at] = all;
    }
  }
}

// Chunks of 16 tokens at least: neighbours in lse share a cache line.
int64_t tokens_per_chunk(int64_t row_bytes) { return std::max<int64_t>(rows_per_chunk(row_bytes) / 16 * 16, 16); }

// Calls body(element) for the dtype of x.
template <class Body>
void with_part(const Tensor& x, Body&& body) {
  switch (x.dtype()) {
    case DType::bf16: return body(BFloat16());
    case DType::f16: return body(Float16());
    default: return body(float());
  }
}

void attention_merge(Stream& stream, const Tensor& acc, const Tensor& acc_lse, const Tensor& part,
                     const Tensor& part_lse) {
  const int64_t row_bytes = part.dim(1) * part.dim(2) * int64_t(2 * sizeof(float) + size_of(part.dtype()));
  stream.team().parallel_for(part.dim(0), tokens_per_chunk(row_bytes), [&](int64_t begin, int64_t end, int) {
    with_part(part, [&](auto element) { merge_rows<decltype(element)>(acc, acc_lse, part, part_lse, begin, end); });
  });
}

void attention_sinks(Stream& stream, const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  const int64_t tokens = y.dim(0), heads = y.dim(1), dim = y.dim(2);
  with_part(y, [&](auto element) {
    using T = decltype(element);
    const T* const scores = sinks.data<T>();
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      for (int64_t t = begin; t < end; ++t)
        for (int64_t head = 0; head < heads; ++head) {
          float& here = lse.data<float>()[head * tokens + t];
          const float sink = float(scores[head]), high = std::max(here, sink), low = std::min(here, sink);
          const float all = high + std::log1p(std::exp(low - high));
          const auto keep = hn::Set(d, std::exp(here - all));
          T* const row = y.data<T>() + (t * heads + head) * dim;
          for_each_vector(dim, [&](int64_t i, auto part)
                                   HWY_ATTR { store(hn::Mul(load(d, row + i, part), keep), d, row + i, part); });
          here = all;
        }
    };
    stream.team().parallel_for(tokens, tokens_per_chunk(heads * dim * int64_t(2 * sizeof(T))), body);
  });
}

// A sink's value is 0: of dscore = p (dp - dy . y) nothing is left but the second term.
void attention_sinks_backward(Stream& stream, const Tensor& dsinks, const Tensor& dy, const Tensor& y,
                              const Tensor& lse, const Tensor& sinks) {
  const int64_t tokens = y.dim(0), heads = y.dim(1), dim = y.dim(2);
  with_part(y, [&](auto element) {
    using T = decltype(element);
    stream.team().parallel_for(heads, 1, [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      for (int64_t head = begin; head < end; ++head) {
        const float* const ends = lse.data<float>() + head * tokens;
        const float sink = float(sinks.data<T>()[head]);
        auto sum = hn::Zero(d);
        for (int64_t t = 0; t < tokens; ++t) {
          const int64_t row = (t * heads + head) * dim;
          const T *const gradient = dy.data<T>() + row, *const value = y.data<T>() + row;
          auto dot = hn::Zero(d);
          for_each_vector(dim, [&](int64_t i, auto part) HWY_ATTR {
            dot = hn::MulAdd(load(d, gradient + i, part), load(d, value + i, part), dot);
          });
          sum = hn::MulAdd(dot, hn::Set(d, std::exp(sink - ends[t])), sum);
        }
        dsinks.data<float>()[head] -= hn::GetLane(hn::SumOfLanes(d, sum));
      }
    });
  });
}

template <class T>
void accumulate_as(Stream& stream, const Tensor& sum, const Tensor& x) {
  stream.team().parallel_for(x.numel(), elements_per_chunk(int64_t(2 * sizeof(float) + sizeof(T))),
                             [&](int64_t begin, int64_t end, int) {
                               const F32Tag d;
                               float* y = sum.data<float>() + begin;
                               const T* in = x.data<T>() + begin;
                               for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
                                 store(hn::Add(load(d, y + i, part), load(d, in + i, part)), d, y + i, part);
                               });
                             });
}

void accumulate(Stream& stream, const Tensor& sum, const Tensor& x) {
  with_part(x, [&](auto element) { accumulate_as<decltype(element)>(stream, sum, x); });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(attention_merge);
HWY_EXPORT(attention_sinks);
HWY_EXPORT(attention_sinks_backward);
HWY_EXPORT(accumulate);

void attention_merge(Stream& stream, const Tensor& acc, const Tensor& acc_lse, const Tensor& part,
                     const Tensor& part_lse) {
  shapes::check_attention_merge(acc, acc_lse, part, part_lse);
  check(part.dtype() != DType::f64, "attention_merge on the CPU takes f32, bf16 or f16, not f64");
  HWY_DYNAMIC_DISPATCH(attention_merge)(stream, acc, acc_lse, part, part_lse);
}

void attention_sinks(Stream& stream, const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  shapes::check_attention_sinks("attention_sinks", y, lse, sinks);
  check(y.dtype() != DType::f64, "attention_sinks on the CPU takes f32, bf16 or f16, not f64");
  HWY_DYNAMIC_DISPATCH(attention_sinks)(stream, y, lse, sinks);
}

void attention_sinks_backward(Stream& stream, const Tensor& dsinks, const Tensor& dy, const Tensor& y,
                              const Tensor& lse, const Tensor& sinks) {
  shapes::check_attention_sinks_backward(dsinks, dy, y, lse, sinks);
  check(y.dtype() != DType::f64, "attention_sinks on the CPU takes f32, bf16 or f16, not f64");
  HWY_DYNAMIC_DISPATCH(attention_sinks_backward)(stream, dsinks, dy, y, lse, sinks);
}

void accumulate(Stream& stream, const Tensor& sum, const Tensor& x) {
  shapes::check_accumulate(sum, x);
  if (x.dtype() == DType::f64) return add(stream, sum, sum, x);
  HWY_DYNAMIC_DISPATCH(accumulate)(stream, sum, x);
}

}  // namespace weft::cpu
#endif
