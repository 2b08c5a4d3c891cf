// Dense matrix products and their epilogues.
#include "weft/kernels/cuda/matmul.h"

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/matmul_epilogue.cuh"
#include "weft/kernels/cuda/ragged_gemm.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

using Kind = Epilogue::Kind;

// Memory bounds it: every tensor of the epilogue is read or written once.
template <Kind kKind, int kWidth>
__global__ void finish_kernel(Finish e, Floats product, OuterScales scales, int64_t count, int64_t cols) {
  for (int64_t i = first_element() * kWidth; i < count; i += element_stride() * kWidth) {
    int64_t col = 0;  // of who asks; 64 bits are slow to divide
    if (e.bias.p || scales.rows) col = i <= UINT32_MAX ? unsigned(i) % unsigned(cols) : i % cols;
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

}  // namespace

DenseProduct::DenseProduct(Stream& stream, const MatmulArgs& args) : stream_(stream), args_(args), product_(args.y) {
  const Tensor& bias = args.epilogue.bias;
  gemm_adds_bias_ = bias && adds_bias(args.y.dtype(), bias.dtype(), bias.raw());
  const bool is_split = !bias && !args.accumulate && !args.transpose_a && !args.transpose_b &&
                        is_ragged(args.a.dtype(), args.a.dim(0), args.a.dim(1), args.y.dim(1));
  if (((bias && !gemm_adds_bias_) || is_split) && args.y.dtype() != DType::f32)
    product_ = stream.allocator().empty(DType::f32, args.y.shape());
}

// cuBLASLt's own activation, where all tensors are of one type of 16 bits.
GemmActivation DenseProduct::activation() const {
  const Epilogue& e = args_.epilogue;
  const bool is_forward = e.kind == Kind::activate, is_backward = e.kind == Kind::activate_backward;
  const Tensor& other = is_forward ? e.act : e.pre;
  const DType type = args_.a.dtype();
  if ((!is_forward && !is_backward) || e.f != Activation::gelu_tanh || args_.accumulate || type == DType::f32 ||
      args_.y.dtype() != type || other.dtype() != type || args_.y.dim(1) % 8 != 0 || !are_aligned(args_.y, other) ||
      (e.bias && !gemm_adds_bias_) || (e.bias && is_backward) || product_.raw() != args_.y.raw())
    return GemmActivation::none;
  return is_forward ? GemmActivation::gelu : GemmActivation::gelu_backward;
}

Gemm DenseProduct::gemm_of(int64_t col, int64_t cols, const void* b, bool rounds_f32) const {
  const auto at = [&](const Tensor& t) {
    return static_cast<std::byte*>(t.raw()) + size_t(col) * size_of(t.dtype());
  };
  return {.type = args_.a.dtype(),
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
}

void DenseProduct::multiply(int64_t col, int64_t cols, const void* b, bool rounds_f32) {
  Gemm g = gemm_of(col, cols, b, rounds_f32);
  const GemmActivation wanted = cols == args_.y.dim(1) ? activation() : GemmActivation::none;
  if (wanted != GemmActivation::none) {
    Gemm active = g;
    active.activation = wanted;
    active.pre = wanted == GemmActivation::gelu ? g.y : args_.epilogue.pre.raw();
    if (wanted == GemmActivation::gelu) active.y = args_.epilogue.act.raw();
    gemm_activates_ = can_gemm(active);
    if (gemm_activates_) g = active;
  }
  ragged_gemm(stream_, g);
}

void DenseProduct::clear() {
  if (!args_.accumulate) stream_.queue().clear(product_.raw(), product_.bytes());
  gemm_adds_bias_ = false;
}

void DenseProduct::finish() {
  if (!gemm_activates_) finish_product(stream_, args_, product_, {}, gemm_adds_bias_);
}

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
  if (matmul_few(stream, std::span(&args, 1))) return;
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
