// GemmTrial: its operands, and whether two results are the same.
#include "weft/kernels/cuda/gemm_trial.h"

#include "weft/kernels/cuda/launch.h"
#include "weft/kernels/cuda/noise.h"
#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {
namespace {

// Of a as it lies, with what is between its rows.
int64_t a_elements(const Gemm& g) {
  const int64_t rows = g.transpose_a ? g.k : g.m, cols = g.transpose_a ? g.m : g.k;
  return rows * (g.a_stride ? g.a_stride : cols);
}
int64_t y_elements(const Gemm& g) { return g.m * g.y_stride; }
int64_t y_bytes(const Gemm& g) { return round_up(y_elements(g) * int64_t(size_of(g.y_type)), kVectorBytes); }

__global__ void find_difference_kernel(int32_t* found, const uint4* x, const uint4* y, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const uint4 a = x[i], b = y[i];
    if (a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w) *found = 1;
  }
}

}  // namespace

int64_t trial_bytes(const Gemm& g) {
  const int64_t operands = a_elements(g) + g.k * g.n + (g.bias ? g.n : 0) + (g.pre ? y_elements(g) : 0);
  return operands * int64_t(size_of(g.type)) + 2 * y_bytes(g);
}

GemmTrial::GemmTrial(Stream& stream, const Gemm& like)
    : stream_(stream),
      product_(like),
      a_(noise_of(stream, memory_, like.type, {a_elements(like)}, "a")),
      b_(noise_of(stream, memory_, like.type, {like.k * like.n}, "b")),
      y_(memory_.empty(DType::u8, {y_bytes(like)})),
      kept_(memory_.empty(DType::u8, {y_bytes(like)})) {
  product_.a = a_.raw(), product_.b = b_.raw(), product_.y = y_.raw();
  if (like.bias) bias_ = noise_of(stream, memory_, like.y_type, {like.n}, "bias"), product_.bias = bias_.raw();
  if (like.pre) pre_ = noise_of(stream, memory_, like.y_type, {y_elements(like)}, "pre"), product_.pre = pre_.raw();
}

void GemmTrial::restart() { stream_.queue().clear(y_.raw(), y_.bytes()); }

void GemmTrial::keep() { stream_.queue().copy_on_device(kept_.raw(), y_.raw(), y_.bytes()); }

bool GemmTrial::is_as_kept() {
  const Tensor found = memory_.empty(DType::i32, {1});
  const int64_t count = int64_t(y_.bytes()) / kVectorBytes;
  stream_.queue().clear(found.raw(), found.bytes());
  launch(stream_, find_difference_kernel, over_elements(count), static_cast<int32_t*>(found.raw()),
         static_cast<const uint4*>(y_.raw()), static_cast<const uint4*>(kept_.raw()), count);
  int32_t has_found = 0;
  stream_.queue().copy_to_host(&has_found, found.raw(), sizeof(has_found));
  return has_found == 0;
}

}  // namespace weft::cuda
