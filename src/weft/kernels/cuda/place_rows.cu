// Rows of keys and values into pools, as numbers or as codes of 8 bits with a scale to each head's vector.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/float8.cuh"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/pairs.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// What goes into one or two pools of P, one behind the other: workers [0, first_count) do the first's.
template <class P, class T>
struct Placement {
  struct Rows {
    P* pool;
    const T* x;
    const int32_t* rows;
    int64_t width;       // of a row
    int64_t heads, dim;  // of codes: vectors of a row, and their elements
  } of[2];
  int64_t first_count, count;
};

template <class P, class T, int N, bool kIsWarp>
__global__ void place_rows_kernel(const Placement<P, T> p) {
  follow();
  const Worker<kIsWarp> worker;
  if (worker.index >= p.count) return;
  const bool is_second = worker.index >= p.first_count;
  const auto a = is_second ? p.of[1] : p.of[0];
  const int64_t row = worker.index - (is_second ? p.first_count : 0);
  P* const to = a.pool + int64_t(a.rows[row]) * a.width;
  for (int64_t c = worker.rank * N; c < a.width; c += worker.size * N) {
    float x[N];
    load_n(x, a.x + row * a.width + c);
    store_n(to + c, x);
  }
}

// As CodeScale; a warp to each vector.
template <class T>
__global__ void place_codes_kernel(const Placement<uint8_t, T> p, bool is_int8, float most) {
  constexpr float kLeast = 0x1p-100f;
  follow();
  const Worker<true> worker;
  if (worker.index >= p.count) return;
  const bool is_second = worker.index >= p.first_count;
  const auto a = is_second ? p.of[1] : p.of[0];
  const int64_t vector = worker.index - (is_second ? p.first_count : 0);
  const T* const from = a.x + vector * a.dim;
  uint8_t* const to = a.pool + a.rows[vector / a.heads] * a.width + vector % a.heads * (a.width / a.heads);
  float largest = 0;
  bool is_finite = true;  // maxima lose NaNs
  for (int64_t c = worker.rank; c < a.dim; c += worker.size) {
    const float magnitude = fabsf(load(from + c));
    largest = fmaxf(largest, magnitude);
    is_finite = is_finite && magnitude < INFINITY;
  }
  largest = worker.max(largest);
  is_finite = !__any_sync(kAllLanes, !is_finite);
  const bool has_codes = is_finite && largest >= kLeast;
  const float scale = has_codes ? largest / most : 0, inverse = has_codes ? most / largest : 0;
  for (int64_t c = worker.rank; c < a.dim; c += worker.size) {
    const float y = load(from + c) * inverse;
    to[c] = !has_codes ? uint8_t(0) : is_int8 ? uint8_t(__float2int_rn(y)) : e4m3_of(y);
  }
  constexpr unsigned kNoNumber = 0x7fc00000u;
  const unsigned bits = is_finite ? __float_as_uint(scale) : kNoNumber;
  if (worker.rank < 4) to[a.dim + worker.rank] = uint8_t(bits >> (8 * worker.rank));
}

// Counts rows, or vectors of codes.
template <class P, class T>
Placement<P, T> placement_of(Stream& stream, std::span<const PlaceRowsArgs> all) {
  Placement<P, T> p{};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [pool, x, rows, codes] = all[i];
    const int64_t tokens = x.dim(0), dim = x.cols();
    p.of[i] = {.pool = device_data<P>(pool),
               .x = device_data<T>(x),
               .rows = upload(stream, rows, tokens),
               .width = pool.numel() / (pool.dim(0) * pool.dim(1)),
               .heads = x.numel() / tokens / dim,
               .dim = dim};
    const int64_t count = codes == RowCodes::none ? tokens : tokens * p.of[i].heads;
    if (i == 0) p.first_count = count;
    p.count += count;
  }
  return p;
}

// One or two that are alike.
void place(Stream& stream, std::span<const PlaceRowsArgs> all) {
  const RowCodes codes = all[0].codes;
  with_float("place_rows", all[0].x, [&]<class T>() {
    if (codes != RowCodes::none) {
      const auto p = placement_of<uint8_t, T>(stream, all);
      return launch_following(stream, place_codes_kernel<T>, over_long_rows(p.count, 1).launch, p,
                              codes == RowCodes::int8, most_of(codes));
    }
    with_float("place_rows", all[0].pool, [&]<class P>() {
      constexpr int N = kVector<P, T>;
      const auto p = placement_of<P, T>(stream, all);
      const auto has_vectors = [&](const PlaceRowsArgs& args) {
        return are_aligned(args.pool, args.x) && args.x.numel() / args.x.dim(0) % N == 0;
      };
      with_rows<P, T>(p.count, std::max(p.of[0].width, p.of[1].width), std::ranges::all_of(all, has_vectors),
                      kAnyNumber, [&]<int kElements, bool kIsWarp>(const RowsShape& shape) {
                        launch_following(stream, place_rows_kernel<P, T, kElements, kIsWarp>, shape.launch, p);
                      });
    });
  });
}

}  // namespace

void place_rows(Stream& stream, std::span<const PlaceRowsArgs> all) {
  for (const PlaceRowsArgs& args : all) shapes::check_place_rows(args);
  for_pairs(
      all, [&](std::span<const PlaceRowsArgs> some) { place(stream, some); },
      [](const PlaceRowsArgs& a, const PlaceRowsArgs& b) {
        return a.x.dtype() == b.x.dtype() && a.pool.dtype() == b.pool.dtype() && a.codes == b.codes;
      });
}

}  // namespace weft::cuda
