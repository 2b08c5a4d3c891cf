// RMS and layer norms with the residual addition before them, and their gradients in one pass.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/norm.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

struct RowStatistics {
  float mean = 0;
  float rstd = 0;
};

// A row is in L1 after the first of these passes. The variance is taken around the mean, not from the sum of squares,
// which would cancel.
template <class T>
HWY_INLINE RowStatistics statistics_of_row(NormKind kind, const T* row, int64_t cols, float eps) {
  const F32Tag d;
  const float scale = 1 / float(cols);
  float mean = 0;
  if (kind == NormKind::layer) {
    const auto sum = sum_over(cols, [&](int64_t c, auto part) HWY_ATTR { return load(d, row + c, part); });
    mean = sum_of_lanes(sum) * scale;
  }
  const auto center = hn::Set(d, mean);
  const auto squares = sum_over(cols, [&](int64_t c, auto part) HWY_ATTR {
    const auto x = only_elements(d, hn::Sub(load(d, row + c, part), center), hn::Zero(d), part);
    return hn::Mul(x, x);
  });
  return {mean, 1 / std::sqrt(sum_of_lanes(squares) * scale + eps)};
}

// What rows are multiplied by: the stored weights, and one number that is added to all of them.
template <class W>
struct NormWeight {
  const W* weight;
  float offset;

  template <class Part>
  HWY_INLINE auto operator()(int64_t c, Part part) const {
    const F32Tag d;
    return hn::Add(load(d, weight + c, part), hn::Set(d, offset));
  }
};

// y = (x - mean) rstd weight + bias; bias may be null.
template <class T, class W>
HWY_INLINE void normalize_row(T* y, const T* x, RowStatistics row, NormWeight<W> weight, const W* bias,
                              int64_t cols) {
  const F32Tag d;
  const auto mean = hn::Set(d, row.mean), rstd = hn::Set(d, row.rstd);
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(load(d, x + c, part), mean), rstd);
    const auto scaled = hn::Mul(normal, weight(c, part));
    store(bias ? hn::Add(scaled, load(d, bias + c, part)) : scaled, d, y + c, part);
  });
}

template <class T>
HWY_INLINE void add_row(T* sum, const T* a, const T* b, int64_t cols) {
  const F32Tag d;
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    store(hn::Add(load(d, a + c, part), load(d, b + c, part)), d, sum + c, part);
  });
}

template <class T, class W>
void norm_rows(const NormArgs& args, int64_t begin, int64_t end) {
  const int64_t cols = args.x.cols();
  const NormWeight<W> weight{args.weight.data<W>(), args.weight_offset};
  const W* bias = args.bias ? args.bias.data<W>() : nullptr;
  float* mean = args.kind == NormKind::layer ? args.mean.data<float>() : nullptr;
  float* rstd = args.rstd.data<float>();
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.data<T>() + r * cols;
    if (args.residual) {  // the statistics are those of `sum` as it is stored, which is what the gradient reads
      T* sum = args.sum.data<T>() + r * cols;
      add_row(sum, x, args.residual.data<T>() + r * cols, cols);
      x = sum;
    }
    const RowStatistics row = statistics_of_row(args.kind, x, cols, args.eps);
    if (mean) mean[r] = row.mean;
    rstd[r] = row.rstd;
    normalize_row(args.y.data<T>() + r * cols, x, row, weight, bias, cols);
  }
}

// Calls body(element of x, element of weight) for the pairs of dtypes that are supported.
template <class Body>
void with_norm_dtypes(const Tensor& x, const Tensor& weight, const Tensor& bias, Body body) {
  check(!bias || bias.dtype() == weight.dtype(), "norm: the bias holds {}, the weight {}",
        name_of((bias ? bias : weight).dtype()), name_of(weight.dtype()));
  check(weight.dtype() == DType::f32 || weight.dtype() == x.dtype(),
        "norm: the weight holds {}, but must be f32 or {}", name_of(weight.dtype()), name_of(x.dtype()));
  with_dtype("norm", x, [&](auto element) {
    if (weight.dtype() == DType::f32) return body(element, float());
    body(element, element);
  });
}

void norm(Stream& stream, const NormArgs& args) {
  with_norm_dtypes(args.x, args.weight, args.bias, [&](auto x, auto weight) {
    const int64_t tensors = args.residual ? 4 : 2, row_bytes = args.x.cols() * int64_t(sizeof x);
    const auto body = [&](int64_t begin, int64_t end, int) {
      norm_rows<decltype(x), decltype(weight)>(args, begin, end);
    };
    stream.team().parallel_for(args.x.rows(), rows_per_chunk(tensors * row_bytes), body);
  });
}

// With n = (x - mean) rstd and g = dy weight:  dx = rstd (g - mean(g) - n mean(g n)) + dsum; mean(g) only for layer.
// dweight += dy n and dbias += dy are partial sums, and may be null.
template <class T, class W>
HWY_INLINE void norm_backward_row(NormKind kind, T* dx, const T* dy, const T* dsum, const T* x, RowStatistics row,
                                  NormWeight<W> weight, float* dweight, float* dbias, int64_t cols) {
  const F32Tag d;
  const auto mean = hn::Set(d, row.mean), rstd = hn::Set(d, row.rstd);
  auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    const auto gradient = load(d, dy + c, part);  // 0 outside of the row, so what x is there does not count
    const auto normal = hn::Mul(hn::Sub(load(d, x + c, part), mean), rstd);
    const auto g = hn::Mul(gradient, weight(c, part));
    sum_g = hn::Add(sum_g, g);
    sum_gn = hn::MulAdd(g, normal, sum_gn);
    if (dweight) store(hn::MulAdd(gradient, normal, load(d, dweight + c, part)), d, dweight + c, part);
    if (dbias) store(hn::Add(gradient, load(d, dbias + c, part)), d, dbias + c, part);
  });
  const auto mean_g = hn::Set(d, kind == NormKind::layer ? sum_of_lanes(sum_g) / float(cols) : 0.0f);
  const auto mean_gn = hn::Set(d, sum_of_lanes(sum_gn) / float(cols));
  for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(load(d, x + c, part), mean), rstd);
    const auto g = hn::Mul(load(d, dy + c, part), weight(c, part));
    const auto centered = hn::NegMulAdd(normal, mean_gn, hn::Sub(g, mean_g));
    const auto around = dsum ? load(d, dsum + c, part) : hn::Zero(d);
    store(hn::MulAdd(centered, rstd, around), d, dx + c, part);
  });
}

template <class T, class W>
void norm_backward_rows(const NormBackwardArgs& args, float* dweight, float* dbias, int64_t begin, int64_t end) {
  const int64_t cols = args.x.cols();
  const NormWeight<W> weight{args.weight.data<W>(), args.weight_offset};
  const float* mean = args.kind == NormKind::layer ? args.mean.data<float>() : nullptr;
  const float* rstd = args.rstd.data<float>();
  for (int64_t r = begin; r < end; ++r) {
    const RowStatistics row{mean ? mean[r] : 0.0f, rstd[r]};
    norm_backward_row(args.kind, args.dx.data<T>() + r * cols, args.dy.data<T>() + r * cols,
                      args.dsum ? args.dsum.data<T>() + r * cols : nullptr, args.x.data<T>() + r * cols, row, weight,
                      dweight, dbias, cols);
  }
}

void norm_backward(Stream& stream, const NormBackwardArgs& args) {
  const PartialSums sums(args.x.rows(), args.x.cols());
  const size_t num_tensors = size_t(bool(args.dweight)) + size_t(bool(args.dbias));
  auto* partials = reinterpret_cast<float*>(stream.scratch(0, num_tensors * sums.bytes()));
  float* dweights = args.dweight ? partials : nullptr;  // [count, stride]
  float* dbiases = args.dbias ? partials + (args.dweight ? sums.count * sums.stride : 0) : nullptr;
  with_norm_dtypes(args.x, args.weight, {}, [&](auto x, auto weight) {
    stream.team().parallel_for(sums.rows, sums.rows_each, [&](int64_t begin, int64_t end, int) {
      const auto partial_of = [&](float* all) -> float* {
        if (!all) return nullptr;
        return std::fill_n(all + begin / sums.rows_each * sums.stride, sums.stride, 0.0f) - sums.stride;
      };
      float* dweight = partial_of(dweights);
      float* dbias = partial_of(dbiases);
      norm_backward_rows<decltype(x), decltype(weight)>(args, dweight, dbias, begin, end);
    });
  });
  if (dweights) add_partial_sums(stream, args.dweight.data<float>(), dweights, sums, args.accumulate);
  if (dbiases) add_partial_sums(stream, args.dbias.data<float>(), dbiases, sums, args.accumulate);
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(norm);
HWY_EXPORT(norm_backward);

void norm(Stream& stream, const NormArgs& args) {
  shapes::check_norm(args);
  HWY_DYNAMIC_DISPATCH(norm)(stream, args);
}

void norm_backward(Stream& stream, const NormBackwardArgs& args) {
  shapes::check_norm_backward(args);
  HWY_DYNAMIC_DISPATCH(norm_backward)(stream, args);
}

}  // namespace weft::cpu
#endif
