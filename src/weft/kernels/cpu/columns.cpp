// Products of matrices with vectors of their columns, and sums of products along columns and rows: plain loops, which
// compilers turn into vectors and memory bounds.
#include <algorithm>
#include <array>

#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cpu {
namespace {

template <class Body>
void with_float(std::string_view op, const Tensor& x, Body&& body) {
  switch (x.dtype()) {
    case DType::f32: return body(float());
    case DType::bf16: return body(BFloat16());
    case DType::f16: return body(Float16());
    default: throw Error("{}: {} is not supported on CPUs", op, name_of(x.dtype()));
  }
}

constexpr int64_t kElements = 1 << 14;  // of a task
constexpr int64_t kBlock = 256;         // columns whose sums stay in L1

}  // namespace

void scale_columns(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& factors) {
  shapes::check_scale_columns(y, x, factors);
  const int64_t cols = x.cols();
  with_float("scale_columns", x, [&](auto element) {
    using T = decltype(element);
    const T* const in = x.data<T>();
    T* const out = y.data<T>();
    const float* const by = factors.data<float>();
    stream.team().parallel_for(x.rows(), std::max<int64_t>(1, kElements / std::max<int64_t>(cols, 1)),
                               [&](int64_t begin, int64_t end, int) {
                                 for (int64_t r = begin; r < end; ++r)
                                   for (int64_t c = 0; c < cols; ++c)
                                     out[r * cols + c] = T(float(in[r * cols + c]) * by[c]);
                               });
  });
}

void dot_columns(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b, bool accumulate) {
  shapes::check_dot_columns(y, a, b);
  const int64_t rows = a.rows(), cols = a.cols();
  with_float("dot_columns", a, [&](auto element) {
    using T = decltype(element);
    const T* const left = a.data<T>();
    const T* const right = b.data<T>();
    float* const out = y.data<float>();
    stream.team().parallel_for((cols + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t begin = first * kBlock; begin < std::min(last * kBlock, cols); begin += kBlock) {
        const int64_t count = std::min(kBlock, cols - begin);
        std::array<float, kBlock> sums{};
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < count; ++c)
            sums[size_t(c)] += float(left[r * cols + begin + c]) * float(right[r * cols + begin + c]);
        for (int64_t c = 0; c < count; ++c) out[begin + c] = sums[size_t(c)] + (accumulate ? out[begin + c] : 0);
      }
    });
  });
}

void dot_rows(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_dot_rows(y, a, b);
  const int64_t cols = a.cols();
  with_float("dot_rows", a, [&](auto element) {
    using T = decltype(element);
    const T* const left = a.data<T>();
    const T* const right = b.data<T>();
    stream.team().parallel_for(
        a.rows(), std::max<int64_t>(1, kElements / std::max<int64_t>(cols, 1)), [&](int64_t begin, int64_t end, int) {
          for (int64_t r = begin; r < end; ++r) {
            constexpr int64_t kLanes = 16;  // sums side by side
            std::array<float, kLanes> sums{};
            for (int64_t c = 0; c < cols; ++c)
              sums[size_t(c % kLanes)] += float(left[r * cols + c]) * float(right[r * cols + c]);
            float sum = 0;
            for (const float s : sums) sum += s;
            y.data<float>()[r] = sum;
          }
        });
  });
}

}  // namespace weft::cpu
