// Adafactor: sums of rows and columns, their moments, and the update of part of a matrix.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/adafactor.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/masters-inl.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/shape_checks.h"

#ifndef WEFT_KERNELS_CPU_ADAFACTOR_ROWS_
#define WEFT_KERNELS_CPU_ADAFACTOR_ROWS_
namespace weft::cpu {

// The rows that a piece of a matrix touches, of which the first and the last may be parts.
struct PieceRows {
  explicit PieceRows(const MatrixPiece& p)
      : cols(std::max<int64_t>(p.cols.numel(), 1)),
        first(p.first),
        end(p.first + p.x.numel()),
        first_row(first / cols),
        num_rows(end > first ? (end - 1) / cols - first_row + 1 : 0) {}
  // Calls visit(row of the matrix, its first column, count, index of that element in x) for rows [begin, last) of
  // those touched.
  template <class Visit>
  void each(int64_t begin, int64_t last, Visit&& visit) const {
    for (int64_t row = first_row + begin; row < first_row + last; ++row) {
      const int64_t from = std::max(first, row * cols), to = std::min(end, (row + 1) * cols);
      visit(row, from - row * cols, to - from, from - first);
    }
  }
  int64_t cols, first, end, first_row, num_rows;
};

}  // namespace weft::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

void add_factor_sums(Stream& stream, const MatrixPiece& p) {
  const PieceRows rows(p);
  const PartialSums sums(rows.num_rows, rows.cols);
  if (rows.num_rows == 0) return;
  auto* const partials = reinterpret_cast<float*>(stream.scratch(0, sums.bytes()));
  const float* const x = p.x.data<float>();
  float* const row_sums = p.rows.data<float>();
  stream.team().parallel_for(sums.count, 1, [&](int64_t begin, int64_t end, int) {
    const F32Tag d;
    const auto scale = hn::Set(d, p.scale);
    for (int64_t k = begin; k < end; ++k) {
      float* const col_sums = partials + k * sums.stride;
      std::fill_n(col_sums, sums.stride, 0.0f);
      const int64_t last = std::min((k + 1) * sums.rows_each, sums.rows);
      rows.each(k * sums.rows_each, last, [&](int64_t row, int64_t col, int64_t n, int64_t at) HWY_ATTR {
        auto sum = hn::Zero(d);
        for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
          const auto g = hn::Mul(load(d, x + at + i, part), scale);
          const auto square = hn::Mul(g, g);
          sum = hn::Add(sum, square);
          store(hn::Add(load(d, col_sums + col + i, part), square), d, col_sums + col + i, part);
        });
        row_sums[row] += sum_of_lanes(sum);
      });
    }
  });
  add_partial_sums(stream, p.cols.data<float>(), partials, sums, true);
}

double factored_squares(Stream& stream, const MatrixPiece& p) {
  const PieceRows rows(p);
  const PartialSums sums(rows.num_rows, 16);  // as many chunks of rows
  if (rows.num_rows == 0) return 0;
  auto* const partials = reinterpret_cast<double*>(stream.scratch(0, size_t(sums.count) * sizeof(double)));
  const float *const x = p.x.data<float>(), *const row_factors = p.rows.data<float>(),
                     *const col_factors = p.cols.data<float>();
  stream.team().parallel_for(sums.count, 1, [&](int64_t begin, int64_t end, int) {
    const F32Tag d;
    const auto scale = hn::Set(d, p.scale);
    for (int64_t k = begin; k < end; ++k) {
      double total = 0;
      const int64_t last = std::min((k + 1) * sums.rows_each, sums.rows);
      rows.each(k * sums.rows_each, last, [&](int64_t row, int64_t col, int64_t n, int64_t at) HWY_ATTR {
        const auto row_factor = hn::Mul(scale, hn::Set(d, row_factors[row]));
        total += double(sum_of_lanes(sum_over(n, [&](int64_t i, auto part) HWY_ATTR {
          const auto g = hn::Mul(load(d, x + at + i, part), row_factor);
          const auto u = hn::Mul(g, load(d, col_factors + col + i, part));
          return hn::Mul(u, u);
        })));
      });
      partials[k] = total;
    }
  });
  double sum = 0;
  for (int64_t k = 0; k < sums.count; ++k) sum += partials[k];
  return sum;
}

void adafactor(Stream& stream, const AdafactorArgs& args) {
  const PieceRows rows(args.grad);
  const float *const x = args.grad.x.data<float>(), *const row_factors = args.grad.rows.data<float>(),
                     *const col_factors = args.grad.cols.data<float>();
  with_master("adafactor", args, [&](const auto& masters) {
    stream.team().parallel_for(
        rows.num_rows, rows_per_chunk(rows.cols * (4 * 3 + 2)), [&](int64_t begin, int64_t end, int) {
          const F32Tag d;
          const auto lr = hn::Set(d, args.lr), decay = hn::Set(d, args.weight_decay);
          rows.each(begin, end, [&](int64_t row, int64_t col, int64_t n, int64_t at) HWY_ATTR {
            const auto row_factor = hn::Set(d, args.grad.scale * args.factor * row_factors[row]);
            for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
              const auto g = hn::Mul(load(d, x + at + i, part), row_factor);
              const auto update = hn::Mul(g, load(d, col_factors + col + i, part));
              const auto old = masters.load_at(at + i, part);
              masters.store_at(at + i, hn::NegMulAdd(lr, hn::MulAdd(decay, old, update), old), part);
            });
          });
        });
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(add_factor_sums);
HWY_EXPORT(factored_squares);
HWY_EXPORT(adafactor);

void add_factor_sums(Stream& stream, const MatrixPiece& p) {
  shapes::check_matrix_piece("add_factor_sums", p);
  HWY_DYNAMIC_DISPATCH(add_factor_sums)(stream, p);
}

double factored_squares(Stream& stream, const MatrixPiece& p) {
  shapes::check_matrix_piece("factored_squares", p);
  return HWY_DYNAMIC_DISPATCH(factored_squares)(stream, p);
}

void adafactor(Stream& stream, const AdafactorArgs& args) {
  shapes::check_adafactor(args);
  HWY_DYNAMIC_DISPATCH(adafactor)(stream, args);
}

// One number for each row or column: nothing beside the passes over the matrix.
void factor_moment(Stream&, const FactorMomentArgs& args) {
  shapes::check_factor_moment(args);
  const int64_t n = args.moment.numel();
  float *const moment = args.moment.data<float>(), *const sums = args.sums.data<float>();
  const float rest = float(1 - double(args.beta)), part = 1 / args.count;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    moment[i] = args.beta * moment[i] + rest * (sums[i] * part + args.eps);
    sum += double(moment[i]);
  }
  const float numerator = args.is_normalised && n > 0 ? float(sum / double(n)) : 1;
  for (int64_t i = 0; i < n; ++i) sums[i] = std::sqrt(numerator / moment[i]);
}

}  // namespace weft::cpu
#endif
