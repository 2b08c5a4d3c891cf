// AdamW with moments of 8 bits, and their codes: a block of threads to each block of codes, a thread to each element.
#include "weft/kernels/block_codes.h"
#include "weft/kernels/cuda/adamw.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/device_table.cuh"
#include "weft/kernels/cuda/master.cuh"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kBlock = block_codes::kBlock, kDecades = block_codes::kDecades;

// block_codes.h in a kernel's hands.
__constant__ DeviceTable<float, kDecades> kEnds = device_table(block_codes::kEnds);
__constant__ DeviceTable<float, kDecades> kFactors = device_table(block_codes::kFactors);

struct Codes {
  uint8_t* codes;
  float* scales;
  const float* table;  // the numbers of codes
  bool is_signed;
  float top;

  // Every thread of the block takes part; a thread without an element gives 0.
  __device__ void encode(float x, int64_t block, bool has_element) const {
    const float largest = block_max(fabsf(x)), inverse = largest < block_codes::kSmallest ? 0 : 1 / largest;
    if (threadIdx.x == 0) scales[block] = inverse > 0 ? largest : 0;
    if (!has_element) return;
    // Rounded after each step, as on the host.
    const float part = __fmul_rn(x, inverse), y = __fmul_rn(fabsf(part), top);
    int decade = kDecades - 1;
    while (decade > 0 && y < kEnds.values[decade - 1]) --decade;
    const int n = (is_signed ? 1 : 2) << decade, first = n - (is_signed ? 0 : 1);
    const float place = __fmul_rn(__fadd_rn(__fmul_rn(y, kFactors.values[decade]), -0.1f), __fdiv_rn(float(n), 0.9f));
    int code = first + int(fminf(fmaxf(place, 0.0f), float(n - 1)));
    if (is_signed ? y < block_codes::kLeast : y == 0) code = 0;
    codes[block * kBlock + threadIdx.x] = uint8_t(code == 0 || !is_signed || part >= 0 ? code : code + 128);
  }
  __device__ float decode(int64_t block) const { return table[codes[block * kBlock + threadIdx.x]] * scales[block]; }
};

// M is a Master, G the gradient's type.
template <class M, class G>
__global__ void adamw8_kernel(const M master, const G* grad, const Codes m_codes, const Codes v_codes,
                              const AdamWRule rule, int64_t count) {
  const int64_t block = blockIdx.x, i = block * kBlock + threadIdx.x;
  float m = 0, v = 0;
  if (i < count) {
    m = m_codes.decode(block), v = v_codes.decode(block);
    const float update[1] = {rule.update(load(grad + i), m, v)};
    master.step(i, update);
  }
  m_codes.encode(m, block, i < count);
  v_codes.encode(v, block, i < count);
}

__global__ void encode_kernel(const Codes to, const float* x, int64_t count) {
  const int64_t block = blockIdx.x, i = block * kBlock + threadIdx.x;
  to.encode(i < count ? x[i] : 0, block, i < count);
}

__global__ void decode_kernel(float* x, const Codes from, int64_t count) {
  const int64_t block = blockIdx.x, i = block * kBlock + threadIdx.x;
  if (i < count) x[i] = from.decode(block);
}

Codes codes_of(Stream& stream, const Tensor& codes, const Tensor& scales, bool is_signed) {
  const block_codes::Table& table = block_codes::table(is_signed);
  return {.codes = device_data<uint8_t>(codes),
          .scales = device_data<float>(scales),
          .table = upload(stream, table.data(), int64_t(table.size())),
          .is_signed = is_signed,
          .top = float(block_codes::top(is_signed))};
}

LaunchShape over_blocks(int64_t count) {
  return {.blocks_x = unsigned(block_codes::num_blocks(count)), .threads = kBlock};
}

}  // namespace

void adamw8(Stream& stream, const AdamW8Args& args) {
  shapes::check_adamw8(args);
  const int64_t count = args.adamw.master.numel();
  const Codes m = codes_of(stream, args.m, args.m_scale, true), v = codes_of(stream, args.v, args.v_scale, false);
  with_master("adamw8", args.adamw, [&]<class T, class M>(const M& master) {
    with_gradient<T>(args.adamw.grad, [&]<class G>(const G* grad) {
      launch(stream, adamw8_kernel<M, G>, over_blocks(count), master, grad, m, v, AdamWRule::of(args.adamw), count);
    });
  });
}

void encode_blocks(Stream& stream, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed) {
  shapes::check_blocks("encode_blocks", codes, scales, x);
  launch(stream, encode_kernel, over_blocks(x.numel()), codes_of(stream, codes, scales, is_signed),
         device_data<float>(x), x.numel());
}

void decode_blocks(Stream& stream, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  shapes::check_blocks("decode_blocks", codes, scales, x);
  launch(stream, decode_kernel, over_blocks(x.numel()), device_data<float>(x),
         codes_of(stream, codes, scales, is_signed), x.numel());
}

}  // namespace weft::cuda
