// Adafactor: sums of rows and columns, their moments, and the update of part of a matrix, a block to each row.
#include "weft/kernels/cuda/column_sums.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/master.cuh"
#include "weft/kernels/cuda/squares.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// A MatrixPiece; rows are counted from the first that it touches.
struct Piece {
  const float* x;
  float scale;
  int64_t first, count;  // of elements; `first` counts from the beginning of the first row touched
  float *rows, *cols;    // of the first row touched
  int64_t num_rows, num_cols;

  // The elements of a row are x[begin + c] for columns c from `from` to `to`.
  struct Row {
    int64_t begin, from, to;
  };
  __device__ Row row(int64_t r) const {
    const int64_t begin = r * num_cols - first;
    return {begin, max(int64_t(0), -begin), min(num_cols, count - begin)};
  }
};

Piece piece_of(const MatrixPiece& p) {
  const int64_t cols = p.cols.numel(), first_row = cols ? p.first / cols : 0, first = p.first - first_row * cols;
  return {.x = device_data<float>(p.x),
          .scale = p.scale,
          .first = first,
          .count = p.x.numel(),
          .rows = device_data<float>(p.rows) + first_row,
          .cols = device_data<float>(p.cols),
          .num_rows = cols && p.x.numel() ? ceil_div(first + p.x.numel(), cols) : 0,
          .num_cols = cols};
}

__global__ void row_sums_kernel(const Piece p) {
  const Piece::Row row = p.row(blockIdx.x);
  float sum = 0;
  for (int64_t c = row.from + threadIdx.x; c < row.to; c += blockDim.x) {
    const float g = p.x[row.begin + c] * p.scale;
    sum += g * g;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) p.rows[blockIdx.x] += sum;
}

struct SquaredPieceTerms {
  Piece p;

  template <int N>
  __device__ __forceinline__ void at(float (&term)[N], int64_t r, int64_t c) const {
    static_assert(N == 1);
    const Piece::Row row = p.row(r);
    const float g = c >= row.from && c < row.to ? p.x[row.begin + c] * p.scale : 0;
    term[0] = g * g;
  }
};

// One block: there are as many numbers as a matrix has rows or columns.
__global__ void factor_moment_kernel(float* moment, float* sums, int64_t count, float per, float beta, float eps,
                                     bool is_normalised) {
  float total = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    moment[i] = beta * moment[i] + (1 - beta) * (sums[i] / per + eps);
    total += moment[i];
  }
  const float mean = is_normalised ? block_sum(total) / float(count) : 1;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sums[i] = sqrtf(mean / moment[i]);
}

__global__ void row_squares_kernel(double* sums, const Piece p) {
  const Piece::Row row = p.row(blockIdx.x);
  const float factor = p.scale * p.rows[blockIdx.x];
  double sum = 0;
  for (int64_t c = row.from + threadIdx.x; c < row.to; c += blockDim.x) {
    const double u = double(p.x[row.begin + c]) * double(factor) * double(p.cols[c]);
    sum += u * u;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class M>
__global__ void adafactor_kernel(const M master, const Piece p, float factor) {
  const Piece::Row row = p.row(blockIdx.x);
  const float by = p.scale * p.rows[blockIdx.x] * factor;
  for (int64_t c = row.from + threadIdx.x; c < row.to; c += blockDim.x) {
    const float update[1] = {p.x[row.begin + c] * by * p.cols[c]};
    float x[1];
    master.load(row.begin + c, x);
    master.step(row.begin + c, x, update);
  }
}

}  // namespace

void add_factor_sums(Stream& stream, const MatrixPiece& args) {
  shapes::check_matrix_piece("add_factor_sums", args);
  const Piece p = piece_of(args);
  if (p.num_rows == 0) return;
  launch(stream, row_sums_kernel, over_rows(p.num_rows, p.num_cols), p);
  sum_columns<1>(stream, p.cols, SquaredPieceTerms{p}, p.num_rows, p.num_cols, true);
}

void factor_moment(Stream& stream, const FactorMomentArgs& args) {
  shapes::check_factor_moment(args);
  if (args.moment.numel() == 0) return;
  launch(stream, factor_moment_kernel, over_rows(1, args.moment.numel(), 1024), device_data<float>(args.moment),
         device_data<float>(args.sums), args.moment.numel(), args.count, args.beta, args.eps, args.is_normalised);
}

double factored_squares(Stream& stream, const MatrixPiece& args) {
  shapes::check_matrix_piece("factored_squares", args);
  const Piece p = piece_of(args);
  if (p.num_rows == 0) return 0;
  const Tensor sums = stream.allocator().empty(DType::f64, Shape{p.num_rows});
  launch(stream, row_squares_kernel, over_rows(p.num_rows, p.num_cols), device_data<double>(sums), p);
  return sum_of(stream, device_data<double>(sums), p.num_rows);
}

void adafactor(Stream& stream, const AdafactorArgs& args) {
  shapes::check_adafactor(args);
  const Piece p = piece_of(args.grad);
  with_master("adafactor", args, [&]<class T, class M>(const M& master) {
    launch(stream, adafactor_kernel<M>, over_rows(p.num_rows, p.num_cols), master, p, args.factor);
  });
}

}  // namespace weft::cuda
