// AdamW with moments of 8 bits, and their codes.
#include <cmath>

#include "weft/kernels/block_codes.h"
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

using block_codes::kBlock;

std::vector<double> decode(const Tensor& codes, const Tensor& scales, bool is_signed) {
  std::vector<double> x(size_t(codes.numel()));
  const block_codes::Table& table = block_codes::table(is_signed);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = double(table[codes.data<uint8_t>()[i]]) * double(scales.data<float>()[i / kBlock]);
  return x;
}

void encode(const Tensor& codes, const Tensor& scales, const std::vector<double>& x, bool is_signed) {
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, x.size());
    double largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
    const float inverse = block_codes::inverse_of(float(largest));
    scales.data<float>()[begin / kBlock] = inverse > 0 ? float(largest) : 0;
    for (size_t i = begin; i < end; ++i)
      codes.data<uint8_t>()[i] = block_codes::encode(float(x[i]) * inverse, is_signed);
  }
}

}  // namespace

void adamw8(Stream& stream, const AdamW8Args& args) {
  shapes::check_adamw8(args);
  const Tensor m = stream.allocator().empty(DType::f64, args.m.shape()),
               v = stream.allocator().empty(DType::f64, args.m.shape());
  const Tensor master = stream.allocator().empty(DType::f64, args.m.shape()),
               grad = stream.allocator().empty(DType::f64, args.m.shape());
  store(m, decode(args.m, args.m_scale, true));
  store(v, decode(args.v, args.v_scale, false));
  store(master, load_master(args.adamw.master, args.adamw.value));
  store(grad, load(args.adamw.grad));
  AdamWArgs wide = args.adamw;
  wide.master = master, wide.grad = grad, wide.m = m, wide.v = v, wide.value = {};
  adamw(stream, wide);
  store_master(args.adamw.master, args.adamw.value, load(master));
  encode(args.m, args.m_scale, load(m), true);
  encode(args.v, args.v_scale, load(v), false);
}

void encode_blocks(Stream&, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed) {
  shapes::check_blocks("encode_blocks", codes, scales, x);
  encode(codes, scales, load(x), is_signed);
}

void decode_blocks(Stream&, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  shapes::check_blocks("decode_blocks", codes, scales, x);
  store(x, decode(codes, scales, is_signed));
}

}  // namespace weft::reference
