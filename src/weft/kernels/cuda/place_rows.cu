// Rows of keys and values into a pool, as numbers or as codes of 8 bits with a scale to each head's vector.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/float8.cuh"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class P, class T, int N, bool kIsWarp>
__global__ void place_rows_kernel(P* pool, const T* x, const int32_t* rows, int64_t num_rows, int64_t width) {
  follow();
  const Worker<kIsWarp> worker;
  if (worker.index >= num_rows) return;
  P* const to = pool + int64_t(rows[worker.index]) * width;
  for (int64_t c = worker.rank * N; c < width; c += worker.size * N) {
    float a[N];
    load_n(a, x + worker.index * width + c);
    store_n(to + c, a);
  }
}

struct Vectors {
  int64_t count, heads, dim, width;  // of a head's vector: in x, and in bytes in the pool
};

// As CodeScale; a warp to each vector.
template <class T>
__global__ void place_codes_kernel(uint8_t* pool, const T* x, const int32_t* rows, const Vectors v, bool is_int8,
                                   float most) {
  constexpr float kLeast = 0x1p-100f;
  follow();
  const Worker<true> worker;
  if (worker.index >= v.count) return;
  const T* const from = x + worker.index * v.dim;
  uint8_t* const to = pool + (rows[worker.index / v.heads] * v.heads + worker.index % v.heads) * v.width;
  float largest = 0;
  bool is_finite = true;  // maxima lose NaNs
  for (int64_t c = worker.rank; c < v.dim; c += worker.size) {
    const float magnitude = fabsf(load(from + c));
    largest = fmaxf(largest, magnitude);
    is_finite = is_finite && magnitude < INFINITY;
  }
  largest = worker.max(largest);
  is_finite = !__any_sync(kAllLanes, !is_finite);
  const bool has_codes = is_finite && largest >= kLeast;
  const float scale = has_codes ? largest / most : 0, inverse = has_codes ? most / largest : 0;
  for (int64_t c = worker.rank; c < v.dim; c += worker.size) {
    const float y = load(from + c) * inverse;
    to[c] = !has_codes ? uint8_t(0) : is_int8 ? uint8_t(__float2int_rn(y)) : e4m3_of(y);
  }
  constexpr unsigned kNoNumber = 0x7fc00000u;
  const unsigned bits = is_finite ? __float_as_uint(scale) : kNoNumber;
  if (worker.rank < 4) to[v.dim + worker.rank] = uint8_t(bits >> (8 * worker.rank));
}

}  // namespace

void place_rows(Stream& stream, const Tensor& pool, const Tensor& x, const int32_t* rows, RowCodes codes) {
  shapes::check_place_rows(pool, x, rows, codes);
  if (x.numel() == 0) return;
  const int64_t num_rows = x.dim(0), width = x.numel() / num_rows, dim = x.cols();
  const int32_t* const rows_there = upload(stream, rows, num_rows);
  with_float("place_rows", x, [&]<class T>() {
    if (codes != RowCodes::none) {
      const Vectors v{num_rows * (width / dim), width / dim, dim, pool.cols()};
      return launch_following(stream, place_codes_kernel<T>, over_long_rows(v.count, 1).launch,
                              device_data<uint8_t>(pool), device_data<T>(x), rows_there, v, codes == RowCodes::int8,
                              most_of(codes));
    }
    with_float("place_rows", pool, [&]<class P>() {
      with_rows<P, T>(num_rows, width, are_aligned(pool, x), kAnyNumber,
                      [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                        launch_following(stream, place_rows_kernel<P, T, N, kIsWarp>, shape.launch,
                                         device_data<P>(pool), device_data<T>(x), rows_there, num_rows, width);
                      });
    });
  });
}

}  // namespace weft::cuda
