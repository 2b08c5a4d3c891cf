// Dense matrix products and their epilogues.
#include "weft/kernels/cuda/matmul.h"

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/gemm.h"
#include "weft/kernels/cuda/matmul_epilogue.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

using Kind = Epilogue::Kind;

// Memory bounds it: every tensor of the epilogue is read or written once.
template <Kind kKind, int kWidth>
__global__ void finish_kernel(Finish e, Floats product, OuterScales scales, int64_t count, int64_t cols) {
  for (int64_t i = first_element() * kWidth; i < count; i += element_stride() * kWidth) {
    const int64_t col = i % cols;
    float x[kWidth];
    load_floats(product, i, x);
    if (scales.rows)
      for (int j = 0; j < kWidth; ++j) x[j] *= scales.rows[i / cols] * scales.cols[col + j];
    finish_as<kKind>(e, i, col, x);
  }
}

template <int kWidth>
auto finish_kernel_of(Kind kind) {
  switch (kind) {
    case Kind::none: break;
    case Kind::activate: return finish_kernel<Kind::activate, kWidth>;
    case Kind::gated: return finish_kernel<Kind::gated, kWidth>;
    case Kind::activate_backward: return finish_kernel<Kind::activate_backward, kWidth>;
    case Kind::gated_backward: return finish_kernel<Kind::gated_backward, kWidth>;
  }
  return finish_kernel<Kind::none, kWidth>;
}

bool are_in_vectors(const Finish& e, const Floats& product) {
  for (const Floats& t : {product, e.y, e.bias, e.act, e.gate, e.up, e.pre, e.dgate})
    if (!is_aligned(t.p)) return false;
  return true;
}

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

// Rows that do not begin at multiples of 16 bytes, as those of 50,257 logits do not, keep tensor cores waiting: large
// products read a copy of them, and write one, whose rows do.
class RowsInVectors {
 public:
  RowsInVectors(Stream& stream, Gemm& g) : stream_(stream), g_(g), y_(g.y), y_stride_(g.y_stride) {
    constexpr int64_t kLarge = 256;  // as often is each row read or added to
    const int64_t a_rows = g.transpose_a ? g.k : g.m, a_cols = g.transpose_a ? g.m : g.k;
    if (g.n >= kLarge && is_ragged(g.type, a_cols, a_rows)) {
      g.a_stride = round_up(a_cols, per_vector(g.type));
      a_copy_ = stream.allocator().empty(g.type, {a_rows, g.a_stride});
      copy_rows(stream, g.type, a_copy_.raw(), g.a_stride, g.a, a_cols, a_rows, a_cols);
      g.a = a_copy_.raw();
    }
    if (g.k >= kLarge && !g.accumulate && is_ragged(g.y_type, y_stride_, g.m)) {
      g.y_stride = round_up(g.n, per_vector(g.y_type));
      y_copy_ = stream.allocator().empty(g.y_type, {g.m, g.y_stride});
      g.y = y_copy_.raw();
    }
  }
  void finish() {
    if (y_copy_) copy_rows(stream_, g_.y_type, y_, y_stride_, g_.y, g_.y_stride, g_.m, g_.n);
  }

 private:
  static int64_t per_vector(DType type) { return kVectorBytes / int64_t(size_of(type)); }
  static bool is_ragged(DType type, int64_t cols, int64_t rows) {
    constexpr int64_t kLargeMatrix = int64_t(1) << 20;
    return cols % per_vector(type) != 0 && rows * cols >= kLargeMatrix;
  }

  Stream& stream_;
  const Gemm& g_;
  void* const y_;
  const int64_t y_stride_;
  Tensor a_copy_, y_copy_;
};

}  // namespace

DenseProduct::DenseProduct(Stream& stream, const MatmulArgs& args) : stream_(stream), args_(args), product_(args.y) {
  const Tensor& bias = args.epilogue.bias;
  gemm_adds_bias_ = bias && adds_bias(args.y.dtype(), bias.dtype(), bias.raw());
  if (bias && !gemm_adds_bias_ && args.y.dtype() != DType::f32)
    product_ = stream.allocator().empty(DType::f32, args.y.shape());
}

void DenseProduct::multiply(int64_t col, int64_t cols, const void* b, bool rounds_f32) {
  const auto at = [&](const Tensor& t) {
    return static_cast<std::byte*>(t.raw()) + size_t(col) * size_of(t.dtype());
  };
  Gemm g{.type = args_.a.dtype(),
         .y_type = product_.dtype(),
         .m = args_.y.dim(0),
         .n = cols,
         .k = args_.a.dim(args_.transpose_a ? 0 : 1),
         .transpose_a = args_.transpose_a,
         .transpose_b = args_.transpose_b,
         .accumulate = args_.accumulate,
         .rounds_f32 = rounds_f32,
         .y = at(product_),
         .y_stride = args_.y.dim(1),
         .a = args_.a.raw(),
         .b = b,
         .bias = gemm_adds_bias_ ? at(args_.epilogue.bias) : nullptr};
  RowsInVectors rows(stream_, g);
  gemm(stream_, g);
  rows.finish();
}

void DenseProduct::clear() {
  if (!args_.accumulate) stream_.queue().clear(product_.raw(), product_.bytes());
  gemm_adds_bias_ = false;
}

void DenseProduct::finish() { finish_product(stream_, args_, product_, {}, gemm_adds_bias_); }

void finish_product(Stream& stream, const MatmulArgs& args, const Tensor& product, const OuterScales& scales,
                    bool has_bias) {
  Finish e = finish_of(args);
  const bool is_scratch = product.raw() != args.y.raw();
  e.accumulate = args.accumulate && is_scratch;
  if (has_bias) e.bias = {};
  if (e.kind == Kind::none && !e.bias.p && !is_scratch) return;
  const bool y_stays = e.kind == Kind::activate || e.kind == Kind::gated;
  if (y_stays && !e.bias.p && !is_scratch) e.y = {};
  const Floats sums = floats_of(product);
  const int64_t count = args.y.numel(), cols = args.y.dim(1);
  if (cols % 8 == 0 && are_in_vectors(e, sums))
    launch(stream, finish_kernel_of<8>(e.kind), over_elements(count, 8), e, sums, scales, count, cols);
  else
    launch(stream, finish_kernel_of<1>(e.kind), over_elements(count), e, sums, scales, count, cols);
}

void matmul(Stream& stream, const MatmulArgs& args) {
  shapes::check_matmul(args);
  finish_of(args);  // checks its dtypes
  with_float("matmul", args.a, [&]<class T>() {});
  if (!args.blocks_b && !args.nf4_b && !args.b)
    throw Error("matmul: the cuda kernels have no packed layout: packed_matmul_b_bytes is 0, so b must be given");
  for (const Tensor& weight : {args.b, args.blocks_b.blocks, args.nf4_b.blocks, args.nf4_b.scales})
    check(!weight || weight.device() == args.y.device(),
          "matmul: y is on a device and a weight is not; copy it there");
  if (args.y.numel() == 0) return;
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  if (k > 0 && args.blocks_b) return matmul_blocks(stream, args);
  if (k > 0 && args.nf4_b) return matmul_nf4(stream, args);
  if (k > 0 && args.float8) return matmul_rounded(stream, args);
  DenseProduct product(stream, args);
  if (k == 0)
    product.clear();
  else
    product.multiply(0, args.y.dim(1), args.b.raw());
  product.finish();
}

size_t packed_matmul_b_bytes(DType, int64_t, int64_t, bool) { return 0; }

void pack_matmul_b(Stream&, const Tensor&, const Tensor&, bool) {
  throw Error("cuda kernels have no packed layout: packed_matmul_b_bytes is 0, so leave packed_b empty");
}

}  // namespace weft::cuda
