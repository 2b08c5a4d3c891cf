// AdamW with moments of 8 bits, and their codes: a warp to each block of codes, neighbouring elements to a lane.
// Arithmetic bounds it, not memory: of some 130 instructions an element half are for encoding.
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
constexpr int kEach = kBlock / kWarp;  // elements of a lane

// block_codes.h in a kernel's hands.
__device__ const DeviceTable<float, 256> kSignedNumbers = device_table(block_codes::kSigned),
                                         kUnsignedNumbers = device_table(block_codes::kUnsigned);
__constant__ DeviceTable<float, kDecades> kEnds = device_table(block_codes::kEnds);
__constant__ DeviceTable<float, kDecades> kFactors = device_table(block_codes::kFactors);
constexpr auto kSignedTop = float(block_codes::top(true)), kUnsignedTop = float(block_codes::top(false));

// A decade of codes, to be loaded in one go.
struct alignas(16) Decade {
  float factor, intervals;  // what brings it to [0.1, 1), and 0.9 to the number of its intervals
  float last;               // of the intervals, counted from 0
  int first;                // code
};

// What differs from lane to lane is looked up in shared memory.
template <bool kSigned>
struct CodeTable {
  float numbers[256], ends[kDecades];
  Decade decades[kDecades];

  __device__ void fill() {
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
      numbers[i] = kSigned ? kSignedNumbers.values[i] : kUnsignedNumbers.values[i];
    for (int i = threadIdx.x; i < kDecades; i += blockDim.x) {
      const int n = (kSigned ? 1 : 2) << i;
      ends[i] = kEnds.values[i];
      decades[i] = {kFactors.values[i], __fdiv_rn(float(n), 0.9f), float(n - 1), n - (kSigned ? 0 : 1)};
    }
  }

  // Of a part of the block's largest magnitude. Rounded after each step, as on the host.
  __device__ __forceinline__ unsigned encode(float part) const {
    constexpr int kOfZero = block_codes::kOfOne - 127 * block_codes::kPerExponent;  // of the exponent as it lies
    const float y = __fmul_rn(fabsf(part), kSigned ? kSignedTop : kUnsignedTop);
    const int line = (int(__float_as_uint(y) >> 23) * block_codes::kPerExponent + kOfZero) >> 8;
    const int begin = min(max(line, 0), kDecades - 1);
    const Decade decade = decades[begin + (y >= ends[begin] ? 1 : 0)];
    const float place = __fmul_rn(__fadd_rn(__fmul_rn(y, decade.factor), -0.1f), decade.intervals);
    const int code = decade.first + int(fminf(fmaxf(place, 0.0f), decade.last));
    if (kSigned ? y < block_codes::kLeast : y == 0) return 0;
    return unsigned(!kSigned || part >= 0 ? code : code + 128);
  }
};

// Where a lane's elements of a block of codes lie.
struct LanePart {
  int64_t block, begin;
  int count;      // of them, kEach but at the end
  bool is_whole;  // they are kEach, and at addresses of whole vectors

  __device__ LanePart(int64_t block_, int64_t size, bool is_aligned)
      : block(block_), begin(block_ * kBlock + int64_t(threadIdx.x % kWarp) * kEach) {
    count = int(max(int64_t(0), min(int64_t(kEach), size - begin)));
    is_whole = is_aligned && count == kEach;
  }

  // work(x, begin), or where they are not whole work(element, its index) for each.
  template <class Work>
  __device__ __forceinline__ void visit(float (&x)[kEach], const Work& work) const {
    if (is_whole) return work(x, begin);
    for (int j = 0; j < count; ++j) {
      float element[1] = {x[j]};
      work(element, begin + j);
      x[j] = element[0];
    }
  }
  // Zeros where there is no element.
  template <class T>
  __device__ __forceinline__ void load(float (&x)[kEach], const T* p) const {
    for (float& element : x) element = 0;
    visit(x, [&](auto& y, int64_t i) { load_n(y, p + i); });
  }
  __device__ __forceinline__ void store(float* p, float (&x)[kEach]) const {
    visit(x, [&](auto& y, int64_t i) { store_n(p + i, y); });
  }
};

// Calls body(part) for this warp's blocks of codes; all lanes take part.
template <class Body>
__device__ __forceinline__ void each_block(int64_t size, bool is_aligned, const Body& body) {
  const int64_t num_blocks = (size + kBlock - 1) / kBlock, stride = element_stride() / kWarp;
  for (int64_t block = first_element() / kWarp; block < num_blocks; block += stride)
    body(LanePart(block, size, is_aligned));
}

// A lane's codes as they lie, and their scale.
struct Words {
  uint2 codes;
  float scale;

  template <bool kSigned>
  __device__ __forceinline__ void decode(float (&x)[kEach], const CodeTable<kSigned>& table) const {
    for (int j = 0; j < kEach; ++j) x[j] = table.numbers[(j < 4 ? codes.x : codes.y) >> (j % 4 * 8) & 0xff] * scale;
  }
};

struct Codes {
  uint8_t* codes;
  float* scales;

  __device__ __forceinline__ Words load(const LanePart& part) const {
    Words words{make_uint2(0, 0), scales[part.block]};
    if (part.is_whole)
      words.codes = *reinterpret_cast<const uint2*>(codes + part.begin);
    else
      for (int j = 0; j < part.count; ++j)
        (j < 4 ? words.codes.x : words.codes.y) |= unsigned(codes[part.begin + j]) << (j % 4 * 8);
    return words;
  }
  // x is 0 where there is no element.
  template <bool kSigned>
  __device__ __forceinline__ void encode(const float (&x)[kEach], const CodeTable<kSigned>& table,
                                         const LanePart& part) const {
    float largest = 0;
    for (const float element : x) largest = fmaxf(largest, fabsf(element));
    largest = warp_max(largest);
    const float inverse = largest < block_codes::kSmallest ? 0 : 1 / largest;
    if (threadIdx.x % kWarp == 0) scales[part.block] = inverse > 0 ? largest : 0;
    unsigned words[2] = {};
    for (int j = 0; j < kEach; ++j) words[j / 4] |= table.encode(__fmul_rn(x[j], inverse)) << (j % 4 * 8);
    if (part.is_whole)
      *reinterpret_cast<uint2*>(codes + part.begin) = make_uint2(words[0], words[1]);
    else
      for (int j = 0; j < part.count; ++j) codes[part.begin + j] = uint8_t(words[j / 4] >> (j % 4 * 8));
  }
};
static_assert(kEach == 8);  // two words of codes

// M is a Master, G the gradient's type.
template <class M, class G>
__global__ void adamw8_kernel(const M master, const G* grad, const Codes m_codes, const Codes v_codes,
                              const AdamWRule rule, int64_t size, bool is_aligned) {
  __shared__ CodeTable<true> m_table;
  __shared__ CodeTable<false> v_table;
  m_table.fill(), v_table.fill();
  __syncthreads();
  each_block(size, is_aligned, [&](const LanePart& part) {
    float update[kEach], m[kEach], v[kEach], x[kEach] = {};
    part.load(update, grad);
    part.visit(x, [&](auto& y, int64_t i) { master.load(i, y); });
    const Words m_words = m_codes.load(part), v_words = v_codes.load(part);  // before either is waited for
    m_words.decode(m, m_table);
    v_words.decode(v, v_table);
    for (int j = 0; j < kEach; ++j) update[j] = rule.update(update[j], m[j], v[j]);
    if (part.is_whole) {
      master.step(part.begin, x, update);
    } else {
      for (int j = 0; j < part.count; ++j) {
        float element[1] = {x[j]};
        const float change[1] = {update[j]};
        master.step(part.begin + j, element, change);
      }
    }
    m_codes.encode(m, m_table, part);
    v_codes.encode(v, v_table, part);
  });
}

template <bool kSigned>
__global__ void encode_kernel(const Codes to, const float* x, int64_t size, bool is_aligned) {
  __shared__ CodeTable<kSigned> table;
  table.fill();
  __syncthreads();
  each_block(size, is_aligned, [&](const LanePart& part) {
    float numbers[kEach];
    part.load(numbers, x);
    to.encode(numbers, table, part);
  });
}

template <bool kSigned>
__global__ void decode_kernel(float* x, const Codes from, int64_t size, bool is_aligned) {
  __shared__ CodeTable<kSigned> table;
  table.fill();
  __syncthreads();
  each_block(size, is_aligned, [&](const LanePart& part) {
    float numbers[kEach];
    from.load(part).decode(numbers, table);
    part.store(x, numbers);
  });
}

Codes codes_of(const Tensor& codes, const Tensor& scales) {
  return {.codes = device_data<uint8_t>(codes), .scales = device_data<float>(scales)};
}

LaunchShape over_blocks(int64_t size) { return over_elements(block_codes::num_blocks(size) * kWarp); }

}  // namespace

void adamw8(Stream& stream, const AdamW8Args& args) {
  shapes::check_adamw8(args);
  const AdamWArgs& a = args.adamw;
  const int64_t size = a.master.numel();
  const Codes m = codes_of(args.m, args.m_scale), v = codes_of(args.v, args.v_scale);
  with_master("adamw8", a, [&]<class T, class M>(const M& master) {
    with_gradient<T>(a.grad, [&]<class G>(const G* grad) {
      launch(stream, adamw8_kernel<M, G>, over_blocks(size), master, grad, m, v, AdamWRule::of(a), size,
             are_aligned(a.master, a.value, a.grad, args.m, args.v));
    });
  });
}

void encode_blocks(Stream& stream, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed) {
  shapes::check_blocks("encode_blocks", codes, scales, x);
  launch(stream, is_signed ? encode_kernel<true> : encode_kernel<false>, over_blocks(x.numel()),
         codes_of(codes, scales), device_data<float>(x), x.numel(), are_aligned(codes, x));
}

void decode_blocks(Stream& stream, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed) {
  shapes::check_blocks("decode_blocks", codes, scales, x);
  launch(stream, is_signed ? decode_kernel<true> : decode_kernel<false>, over_blocks(x.numel()),
         device_data<float>(x), codes_of(codes, scales), x.numel(), are_aligned(codes, x));
}

}  // namespace weft::cuda
