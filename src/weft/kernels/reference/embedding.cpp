// Rows of a table chosen by ids, and the sum of their gradients.
#include <algorithm>

#include "weft/kernels/block_decode.h"
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void embedding(Stream&, const Tensor& y, const Tensor& table, const TableRows& ids, const Tensor& position_table,
               const int32_t* positions) {
  shapes::check_embedding(y, table, ids, position_table, positions);
  const auto num_tokens = size_t(y.dim(0)), hidden = size_t(y.dim(1));
  const std::vector<double> rows = load(table);
  std::vector<double> values(num_tokens * hidden);
  for (size_t t = 0; t < num_tokens; ++t)
    if (const int64_t row = ids.row(int64_t(t), table.dim(0)); row >= 0)
      for (size_t h = 0; h < hidden; ++h) values[t * hidden + h] = rows[size_t(row) * hidden + h];
  if (position_table) {
    const std::vector<double> position_rows = load(position_table);
    for (size_t t = 0; t < num_tokens; ++t)
      for (size_t h = 0; h < hidden; ++h) values[t * hidden + h] += position_rows[size_t(positions[t]) * hidden + h];
  }
  store(y, values);
}

void embedding_of_blocks(Stream&, const Tensor& y, const BlockMatrix& table, const TableRows& ids) {
  shapes::check_embedding_of_blocks(y, table, ids);
  const auto num_tokens = size_t(y.dim(0)), hidden = size_t(y.dim(1));
  std::vector<double> values(num_tokens * hidden);
  std::vector<float> decoded(hidden);
  for (size_t t = 0; t < num_tokens; ++t)
    if (const int64_t row = ids.row(int64_t(t), table.rows); row >= 0) {
      decode_row(table, row, decoded.data());
      std::copy(decoded.begin(), decoded.end(), values.begin() + ptrdiff_t(t * hidden));
    }
  store(y, values);
}

void embedding_backward(Stream&, const Tensor& dtable, const Tensor& dy, const TableRows& ids) {
  shapes::check_embedding_backward(dtable, dy, ids);
  const auto num_tokens = size_t(dy.dim(0)), hidden = size_t(dy.dim(1));
  const std::vector<double> gradient = load(dy);
  std::vector<double> rows = load(dtable);
  for (size_t t = 0; t < num_tokens; ++t)
    if (const int64_t row = ids.row(int64_t(t), dtable.dim(0)); row >= 0)
      for (size_t h = 0; h < hidden; ++h) rows[size_t(row) * hidden + h] += gradient[t * hidden + h];
  store(dtable, rows);
}

}  // namespace weft::reference
