// Ragged products: copies of rows, and the parts of products of them.
#include "weft/kernels/cuda/ragged_gemm.h"

#include "weft/kernels/cuda/launch.h"

namespace weft::cuda {
namespace {

template <class T>
__global__ void copy_rows_kernel(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t cols) {
  to += int64_t(blockIdx.x) * to_stride, from += int64_t(blockIdx.x) * from_stride;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) to[c] = from[c];
}

void copy_rows(Stream& stream, DType type, void* to, int64_t to_stride, const void* from, int64_t from_stride,
               int64_t rows, int64_t cols) {
  const auto copy = [&]<class T>() {
    launch(stream, copy_rows_kernel<T>, over_rows(rows, cols), static_cast<T*>(to), to_stride,
           static_cast<const T*>(from), from_stride, cols);
  };
  type == DType::f32 ? copy.operator()<uint32_t>() : copy.operator()<uint16_t>();
}

class RaggedProduct {
 public:
  explicit RaggedProduct(Stream& stream) : stream_(stream) {}

  void multiply(Gemm g) {
    const int64_t a_rows = g.transpose_a ? g.k : g.m, a_cols = g.transpose_a ? g.m : g.k;
    if (is_ragged(g.type, a_rows, a_cols, g.n) && (g.transpose_a || splits_sums(g))) {
      const Tensor copy = copied(g.type, g.a, a_cols, a_rows, a_cols);
      g.a = copy.raw(), g.a_stride = copy.dim(1);
      return g.transpose_a ? split_rows(g) : split_sums(g);
    }
    if (!g.accumulate && g.transpose_b && g.n == g.y_stride && is_ragged(g.y_type, g.m, g.n, g.k))
      return split_columns(g);
    gemm(stream_, g);
  }

 private:
  static bool splits_sums(const Gemm& g) { return g.y_type == DType::f32 && !g.transpose_b && !g.bias; }
  Tensor copied(DType type, const void* from, int64_t stride, int64_t rows, int64_t cols) {
    const Tensor copy = stream_.allocator().empty(type, {rows, round_up(cols, per_vector(type))});
    copy_rows(stream_, type, copy.raw(), copy.dim(1), from, stride, rows, cols);
    return copy;
  }
  static void* at(void* p, DType type, int64_t index) {
    return static_cast<std::byte*>(p) + index * int64_t(size_of(type));
  }
  static const void* at(const void* p, DType type, int64_t index) {
    return static_cast<const std::byte*>(p) + index * int64_t(size_of(type));
  }
  static int64_t whole_vectors(DType type, int64_t count) { return count / per_vector(type) * per_vector(type); }

  // a lies as [k, m].
  void split_rows(Gemm g) {
    const int64_t whole = whole_vectors(g.type, g.m), rest = g.m - whole;
    g.m = whole, gemm(stream_, g);
    g.m = rest, g.a = at(g.a, g.type, whole), g.y = at(g.y, g.y_type, whole * g.y_stride);
    gemm(stream_, g);
  }
  // a lies as [m, k], b as [k, n].
  void split_sums(Gemm g) {
    const int64_t whole = whole_vectors(g.type, g.k), rest = g.k - whole;
    g.k = whole, gemm(stream_, g);
    g.k = rest, g.a = at(g.a, g.type, whole), g.b = at(g.b, g.type, whole * g.n), g.accumulate = true;
    gemm(stream_, g);
  }
  // b lies as [n, k].
  void split_columns(Gemm g) {
    const int64_t whole = whole_vectors(g.y_type, g.n);
    const Tensor copy = stream_.allocator().empty(g.y_type, {g.m, whole});
    Gemm first = g;
    first.n = whole, first.y = copy.raw(), first.y_stride = whole;
    gemm(stream_, first);
    copy_rows(stream_, g.y_type, g.y, g.y_stride, copy.raw(), whole, g.m, whole);
    g.n -= whole, g.y = at(g.y, g.y_type, whole), g.b = at(g.b, g.type, whole * g.k);
    if (g.bias) g.bias = at(g.bias, g.y_type, whole);
    gemm(stream_, g);
  }

  Stream& stream_;
};

}  // namespace

void ragged_gemm(Stream& stream, const Gemm& product) { RaggedProduct(stream).multiply(product); }

}  // namespace weft::cuda
