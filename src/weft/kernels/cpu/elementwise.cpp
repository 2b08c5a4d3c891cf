// Element-wise operations, conversions and reductions.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Calls body(element of the dtype of t) for every float.
template <class Body>
void with_float(std::string_view op, const Tensor& t, Body&& body) {
  switch (t.dtype()) {
    case DType::f64: return body(double());
    case DType::f32: return body(float());
    case DType::bf16: return body(BFloat16());
    case DType::f16: return body(Float16());
    default: throw Error("{}: the cpu kernels compute on floats, not on {}", op, name_of(t.dtype()));
  }
}

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  with_float("add", y, [&](auto element) {
    using T = decltype(element);
    const auto body = [&](int64_t begin, int64_t end, int) {
      const T* left = a.data<T>() + begin;
      const T* right = b.data<T>() + begin;
      T* out = y.data<T>() + begin;
      if constexpr (std::is_same_v<T, double>) {
        for (int64_t i = 0; i < end - begin; ++i) out[i] = left[i] + right[i];
      } else {
        const F32Tag d;
        for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
          store(hn::Add(load(d, left + i, part), load(d, right + i, part)), d, out + i, part);
        });
      }
    };
    stream.team().parallel_for(y.numel(), elements_per_chunk(3 * int64_t(sizeof(T))), body);
  });
}

void scale(Stream& stream, const Tensor& y, const Tensor& x, float factor) {
  with_float("scale", y, [&](auto element) {
    using T = decltype(element);
    const auto body = [&](int64_t begin, int64_t end, int) {
      const T* in = x.data<T>() + begin;
      T* out = y.data<T>() + begin;
      if constexpr (std::is_same_v<T, double>) {
        for (int64_t i = 0; i < end - begin; ++i) out[i] = in[i] * double(factor);
      } else {
        const F32Tag d;
        const auto factors = hn::Set(d, factor);
        for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
          store(hn::Mul(load(d, in + i, part), factors), d, out + i, part);
        });
      }
    };
    stream.team().parallel_for(y.numel(), elements_per_chunk(2 * int64_t(sizeof(T))), body);
  });
}

// Rounds to odd, so that rounding the result once more to 16 bits equals rounding x to 16 bits directly.
inline float to_odd_float(double x) {
  const float nearest = float(x);
  if (double(nearest) == x || !std::isfinite(nearest) || (std::bit_cast<uint32_t>(nearest) & 1u)) return nearest;
  return std::nextafter(nearest, double(nearest) < x ? HUGE_VALF : -HUGE_VALF);
}

template <class To, class From>
void convert_range(To* to, const From* from, int64_t n) {
  if constexpr (std::is_same_v<To, From>) {
    if (to != from) std::memcpy(static_cast<void*>(to), from, size_t(n) * sizeof(To));
  } else if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    for (int64_t i = 0; i < n; ++i) to[i] = To(to_odd_float(from[i]));
  } else if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>) {
    for (int64_t i = 0; i < n; ++i) to[i] = To(float(from[i]));
  } else {
    const F32Tag d;
    for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR { store(load(d, from + i, part), d, to + i, part); });
  }
}

void convert(Stream& stream, const Tensor& y, const Tensor& x) {
  with_float("convert", y, [&](auto y_element) {
    with_float("convert", x, [&](auto x_element) {
      const auto body = [&](int64_t begin, int64_t end, int) {
        convert_range(y.data<decltype(y_element)>() + begin, x.data<decltype(x_element)>() + begin, end - begin);
      };
      stream.team().parallel_for(y.numel(), elements_per_chunk(int64_t(sizeof y_element + sizeof x_element)), body);
    });
  });
}

void place_rows(Stream& stream, const PlaceRowsArgs& args) {
  const Tensor &pool = args.pool, &x = args.x;
  const int32_t* const rows = args.rows;
  with_float("place_rows", pool, [&](auto pool_element) {
    with_float("place_rows", x, [&](auto x_element) {
      const int64_t width = x.numel() / x.dim(0);
      const auto body = [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t)
          convert_range(pool.data<decltype(pool_element)>() + rows[t] * width,
                        x.data<decltype(x_element)>() + t * width, width);
      };
      const auto row_bytes = width * int64_t(sizeof pool_element + sizeof x_element);
      stream.team().parallel_for(x.dim(0), rows_per_chunk(row_bytes), body);
    });
  });
}

// sums[c] = sum of x[r, c] over `rows` rows of `cols` of the `row_stride` columns of x, which it reads in their
// order.
template <class T>
void sum_block(float* sums, const T* x, int64_t rows, int64_t cols, int64_t row_stride) {
  const F32Tag d;
  std::fill_n(sums, cols, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * row_stride;
    for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
      store(hn::Add(load(d, sums + c, part), load(d, row + c, part)), d, sums + c, part);
    });
  }
}

void sum_rows(Stream& stream, const Tensor& y, const Tensor& x, bool accumulate) {
  constexpr int64_t kBlockCols = 4096;  // the partial sums of a block stay in L1
  const PartialSums sums(x.rows(), x.cols());
  const int64_t col_blocks = (sums.cols + kBlockCols - 1) / kBlockCols;
  auto* partials = reinterpret_cast<float*>(stream.scratch(0, sums.bytes()));
  with_dtype("sum_rows", x, [&](auto element) {
    using T = decltype(element);
    const T* data = x.data<T>();
    stream.team().parallel_for(sums.count * col_blocks, 1, [&](int64_t block, int64_t, int) {
      const int64_t partial = block / col_blocks, row = partial * sums.rows_each,
                    col = block % col_blocks * kBlockCols;
      sum_block(partials + partial * sums.stride + col, data + row * sums.cols + col,
                std::min(sums.rows_each, sums.rows - row), std::min(kBlockCols, sums.cols - col), sums.cols);
    });
  });
  add_partial_sums(stream, y.data<float>(), partials, sums, accumulate);
}

template <class T>
double sum_of_squares_range(const T* x, int64_t n) {
  double sum = 0;
  int64_t i = 0;
  if constexpr (!std::is_same_v<T, double>) {
    const hn::ScalableTag<double> d;
    const hn::Rebind<float, decltype(d)> half;
    const auto lanes = int64_t(hn::Lanes(d));
    auto a = hn::Zero(d), b = hn::Zero(d);
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto first = hn::PromoteTo(d, load(half, x + i)), second = hn::PromoteTo(d, load(half, x + i + lanes));
      a = hn::MulAdd(first, first, a);
      b = hn::MulAdd(second, second, b);
    }
    sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  }
  for (; i < n; ++i) {
    double value;
    if constexpr (std::is_same_v<T, double>)
      value = x[i];
    else
      value = double(float(x[i]));
    sum += value * value;
  }
  return sum;
}

double sum_of_squares(Stream& stream, const Tensor& x) {
  constexpr int64_t kChunk = 65536;
  const int64_t chunks = (x.numel() + kChunk - 1) / kChunk;
  auto* partials = reinterpret_cast<double*>(stream.scratch(0, size_t(chunks) * sizeof(double)));
  with_float("sum_of_squares", x, [&](auto element) {
    const auto* data = x.data<decltype(element)>();
    stream.team().parallel_for(x.numel(), kChunk, [&](int64_t begin, int64_t end, int) {
      partials[begin / kChunk] = sum_of_squares_range(data + begin, end - begin);
    });
  });
  double sum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partials[chunk];
  return sum;
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(convert);
HWY_EXPORT(place_rows);
HWY_EXPORT(sum_rows);
HWY_EXPORT(sum_of_squares);

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_alike("add", {{"a", a}, {"b", b}, {"y", y}});
  HWY_DYNAMIC_DISPATCH(add)(stream, y, a, b);
}

void scale(Stream& stream, const Tensor& y, const Tensor& x, float factor) {
  shapes::check_alike("scale", {{"x", x}, {"y", y}});
  HWY_DYNAMIC_DISPATCH(scale)(stream, y, x, factor);
}

void convert(Stream& stream, const Tensor& y, const Tensor& x) {
  shapes::check_convert(y, x);
  HWY_DYNAMIC_DISPATCH(convert)(stream, y, x);
}

void place_rows(Stream& stream, const PlaceRowsArgs& args) {
  shapes::check_place_rows(args);
  if (args.x.numel() == 0) return;
  if (args.codes != RowCodes::none) return place_codes(stream, args);
  HWY_DYNAMIC_DISPATCH(place_rows)(stream, args);
}

void fill(Stream& stream, const Tensor& y, float value) {
  shapes::check_fill(y);
  const auto fill_with = [&](auto pattern) {
    using Bits = decltype(pattern);
    auto* data = static_cast<Bits*>(y.raw());
    const auto body = [&](int64_t begin, int64_t end, int) {
      if (pattern == 0)  // the C library's memset knows the machine best
        std::memset(data + begin, 0, size_t(end - begin) * sizeof(Bits));
      else
        std::fill(data + begin, data + end, pattern);
    };
    stream.team().parallel_for(y.numel(), elements_per_chunk(int64_t(sizeof(Bits))), body);
  };
  switch (y.dtype()) {
    case DType::f64: return fill_with(std::bit_cast<uint64_t>(double(value)));
    case DType::f32: return fill_with(std::bit_cast<uint32_t>(value));
    case DType::bf16: return fill_with(BFloat16(value).bits);
    case DType::f16: return fill_with(Float16(value).bits);
    default: throw Error("fill: the cpu kernels fill floats, not {}", name_of(y.dtype()));
  }
}

void sum_rows(Stream& stream, const Tensor& y, const Tensor& x, bool accumulate) {
  shapes::check_sum_rows(y, x);
  HWY_DYNAMIC_DISPATCH(sum_rows)(stream, y, x, accumulate);
}

double sum_of_squares(Stream& stream, std::span<const Tensor> xs) {
  shapes::check_sum_of_squares(xs);
  double sum = 0;
  for (const Tensor& x : xs) sum += HWY_DYNAMIC_DISPATCH(sum_of_squares)(stream, x);
  return sum;
}

}  // namespace weft::cpu
#endif
