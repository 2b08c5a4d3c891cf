// Adafactor: sums of rows and columns, their moments, and the update of part of a matrix.
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void add_factor_sums(Stream&, const MatrixPiece& p) {
  shapes::check_matrix_piece("add_factor_sums", p);
  const std::vector<double> x = load(p.x);
  std::vector<double> rows = load(p.rows), cols = load(p.cols);
  for (size_t i = 0; i < x.size(); ++i) {
    const double g = x[i] * double(p.scale);
    rows[(size_t(p.first) + i) / cols.size()] += g * g;
    cols[(size_t(p.first) + i) % cols.size()] += g * g;
  }
  store(p.rows, rows);
  store(p.cols, cols);
}

void factor_moment(Stream&, const FactorMomentArgs& args) {
  shapes::check_factor_moment(args);
  std::vector<double> moment = load(args.moment), sums = load(args.sums);
  double mean = 0;
  for (size_t i = 0; i < moment.size(); ++i) {
    moment[i] =
        double(args.beta) * moment[i] + (1 - double(args.beta)) * (sums[i] / double(args.count) + double(args.eps));
    mean += moment[i] / double(moment.size());
  }
  for (size_t i = 0; i < moment.size(); ++i) sums[i] = std::sqrt((args.is_normalised ? mean : 1) / moment[i]);
  store(args.moment, moment);
  store(args.sums, sums);
}

double factored_squares(Stream&, const MatrixPiece& p) {
  shapes::check_matrix_piece("factored_squares", p);
  const std::vector<double> x = load(p.x), rows = load(p.rows), cols = load(p.cols);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t at = size_t(p.first) + i;
    const double u = x[i] * double(p.scale) * rows[at / cols.size()] * cols[at % cols.size()];
    sum += u * u;
  }
  return sum;
}

void adafactor(Stream&, const AdafactorArgs& args) {
  shapes::check_adafactor(args);
  const MatrixPiece& p = args.grad;
  const std::vector<double> x = load(p.x), rows = load(p.rows), cols = load(p.cols);
  std::vector<double> master = load_master(args.master, args.value);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t at = size_t(p.first) + i;
    const double u = x[i] * double(p.scale) * rows[at / cols.size()] * cols[at % cols.size()] * double(args.factor);
    master[i] -= double(args.lr) * (u + double(args.weight_decay) * master[i]);
  }
  store_master(args.master, args.value, master);
}

}  // namespace weft::reference
