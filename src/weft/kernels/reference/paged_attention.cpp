// Attention over keys in the blocks of a pool, and rows placed in one: gathered, then as without blocks.
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

// The rows of a sequence's keys or values in order, [num_keys, K, D].
std::vector<double> gather(const std::vector<double>& pool, const Tensor& of, const PagedSequence& s) {
  const int64_t block_tokens = of.dim(1), width = of.dim(2) * of.dim(3);
  std::vector<double> rows;
  for (int64_t j = 0; j < s.num_keys; ++j) {
    const int64_t row = s.blocks[j / block_tokens] * block_tokens + j % block_tokens;
    rows.insert(rows.end(), pool.begin() + row * width, pool.begin() + (row + 1) * width);
  }
  return rows;
}

}  // namespace

void paged_attention(Stream& stream, const PagedAttentionArgs& args) {
  shapes::check_paged_attention(args);
  const std::vector<double> keys = load(args.keys), values = load(args.values);
  Allocator memory;
  for (int i = 0; i < args.num_sequences; ++i) {
    const PagedSequence& s = args.sequences[i];
    const int32_t rows = s.q_end - s.q_begin;
    const Tensor k = memory.empty(DType::f64, {s.num_keys, args.keys.dim(2), args.keys.dim(3)});
    const Tensor v = memory.empty(DType::f64, {s.num_keys, args.values.dim(2), args.values.dim(3)});
    store(k, gather(keys, args.keys, s));
    store(v, gather(values, args.values, s));
    const Tensor q = memory.empty(DType::f64, {rows, args.q.dim(1), args.q.dim(2)});
    const Tensor y = memory.empty(DType::f64, {rows, args.y.dim(1), args.y.dim(2)});
    store(q, load(args.q.slice_rows(s.q_begin, rows)));
    const AttentionSpan span{.q_begin = 0, .q_end = rows, .k_begin = 0, .k_end = s.num_keys};
    AttentionShape shape = shapes::shape_of(args);
    shape.spans = &span, shape.num_spans = 1;
    attention(stream, {.y = y, .q = q, .k = k, .v = v, .shape = shape});
    store(args.y.slice_rows(s.q_begin, rows), load(y));
  }
}

void place_rows(Stream&, const Tensor& pool, const Tensor& x, const int32_t* rows) {
  shapes::check_place_rows(pool, x, rows);
  std::vector<double> all = load(pool);
  const std::vector<double> values = load(x);
  const int64_t num_rows = x.dim(0), width = num_rows ? x.numel() / num_rows : 0;
  for (int64_t t = 0; t < num_rows; ++t)
    std::copy_n(values.begin() + t * width, width, all.begin() + rows[t] * width);
  store(pool, all);
}

}  // namespace weft::reference
