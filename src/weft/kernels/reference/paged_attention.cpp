// Attention over keys in the blocks of a pool, and rows placed in one: gathered, then as without blocks.
#include <algorithm>
#include <cmath>
#include <compare>
#include <cstring>
#include <numeric>
#include <span>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/selected_keys.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

double number_of(RowCodes codes, uint8_t code) {
  return codes == RowCodes::int8 ? double(int8_t(code)) : double(float(Float8E4M3::from_bits(code)));
}

uint8_t code_of(RowCodes codes, float x) {
  return codes == RowCodes::int8 ? uint8_t(int8_t(std::nearbyint(x))) : Float8E4M3::from(x).bits;
}

// The numbers of a pool, of which a head has `dim`.
std::vector<double> load_pool(const Tensor& pool, RowCodes codes, int64_t dim) {
  if (codes == RowCodes::none) return load(pool);
  std::vector<double> numbers;
  numbers.reserve(size_t(pool.rows() * dim));
  for (int64_t r = 0; r < pool.rows(); ++r) {
    const uint8_t* const row = pool.data<uint8_t>() + r * pool.cols();
    float scale = 0;
    std::memcpy(&scale, row + dim, sizeof(scale));
    for (int64_t i = 0; i < dim; ++i) numbers.push_back(number_of(codes, row[i]) * double(scale));
  }
  return numbers;
}

// A head's vector and its scale.
void round_vector(RowCodes codes, std::span<const double> x, uint8_t* to) {
  float largest = 0;  // no number where one of x is none
  for (const double value : x)
    if (const float magnitude = std::abs(float(value)); !(magnitude <= largest) && !std::isnan(largest))
      largest = magnitude;
  const CodeScale scale(largest, most_of(codes));
  for (const double value : x) *to++ = scale.inverse == 0 ? 0 : code_of(codes, float(value) * scale.inverse);
  std::memcpy(to, &scale.value, sizeof(scale.value));
}

// The first `dim` elements of each head of a sequence's rows, in their order: [num_keys, K, dim]. pool: rows of
// `heads` times `width`.
std::vector<double> gather(const std::vector<double>& pool, int64_t block_tokens, int64_t heads, int64_t width,
                           int64_t dim, const PagedSequence& s) {
  std::vector<double> rows;
  for (int64_t j = 0; j < s.num_keys; ++j) {
    const int64_t row = pool_row(s, j, block_tokens);
    for (auto head = pool.begin() + row * heads * width; head < pool.begin() + (row + 1) * heads * width;
         head += width)
      rows.insert(rows.end(), head, head + dim);
  }
  return rows;
}

}  // namespace

void paged_attention(Stream& stream, const PagedAttentionArgs& args) {
  shapes::check_paged_attention(args);
  if (args.selected) return paged_attention(stream, AttentionByRow(stream.allocator(), args).args);
  const int64_t block_tokens = args.keys.dim(1), num_heads = args.keys.dim(2);
  const int64_t dim = args.q.dim(2), value_dim = args.y.dim(2);
  const std::vector<double> keys = load_pool(args.keys, args.codes, dim);
  const int64_t value_width = args.values ? value_dim : dim;
  const std::vector<double> values = load_pool(args.value_pool(), args.codes, value_width);
  Allocator memory;
  for (int i = 0; i < args.num_sequences; ++i) {
    const PagedSequence& s = args.sequences[i];
    const int32_t rows = s.q_end - s.q_begin;
    const Tensor k = memory.empty(DType::f64, {s.num_keys, num_heads, dim});
    const Tensor v = memory.empty(DType::f64, {s.num_keys, num_heads, value_dim});
    store(k, gather(keys, block_tokens, num_heads, dim, dim, s));
    store(v, gather(values, block_tokens, num_heads, value_width, value_dim, s));
    const Tensor q = memory.empty(DType::f64, {rows, args.q.dim(1), args.q.dim(2)});
    const Tensor y = memory.empty(DType::f64, {rows, args.y.dim(1), args.y.dim(2)});
    store(q, load(args.q.slice_rows(s.q_begin, rows)));
    const AttentionSpan span{.q_begin = 0, .q_end = rows, .k_begin = 0, .k_end = s.num_keys};
    AttentionShape shape = shapes::shape_of(args);
    shape.spans = &span, shape.num_spans = 1;
    const Tensor lse = args.sinks ? memory.empty(DType::f64, {q.dim(1), rows}) : Tensor();
    attention(stream, {.y = y, .lse = lse, .q = q, .k = k, .v = v, .shape = shape});
    if (args.sinks) {
      const Tensor sinks = memory.empty(DType::f64, args.sinks.shape());
      store(sinks, load(args.sinks));
      attention_sinks(stream, y, lse, sinks);
    }
    store(args.y.slice_rows(s.q_begin, rows), load(y));
  }
}

void select_keys(Stream&, const SelectKeysArgs& args) {
  shapes::check_select_keys(args);
  const int64_t heads = args.q.dim(1), dim = args.q.dim(2), most = args.selected.dim(1);
  const std::vector<double> pool = load_pool(args.keys, args.codes, dim), q = load(args.q),
                            weights = load(args.weights);
  const auto score_of = [&](int64_t row, const double* key) {
    double score = 0;
    for (int64_t h = 0; h < heads; ++h) {
      const double* const query = q.data() + (row * heads + h) * dim;
      score += weights[size_t(row * heads + h)] * std::max(0.0, std::inner_product(query, query + dim, key, 0.0));
    }
    return score;
  };
  for (const PagedSequence& s : std::span(args.sequences, size_t(args.num_sequences))) {
    const std::vector<double> keys = gather(pool, args.keys.dim(1), 1, dim, dim, s);
    for (int64_t row = s.q_begin; row < s.q_end; ++row) {
      std::vector<int32_t> places(size_t(keys_up_to(s, row)));
      std::iota(places.begin(), places.end(), 0);
      if (int64_t(places.size()) > most) {
        std::vector<double> scores;
        for (const int32_t j : places) scores.push_back(score_of(row, keys.data() + j * dim));
        std::ranges::stable_sort(places, [&](int32_t a, int32_t b) {
          return std::is_gt(std::strong_order(scores[size_t(a)], scores[size_t(b)]));
        });
        places.resize(size_t(most));
        std::ranges::sort(places);
      }
      int32_t* const selected = args.selected.data<int32_t>() + row * most;
      std::fill_n(selected, most, -1);
      const int64_t block_tokens = args.keys.dim(1);
      std::ranges::transform(places, selected, [&](int64_t j) { return int32_t(pool_row(s, j, block_tokens)); });
    }
  }
}

void place_rows(Stream&, const PlaceRowsArgs& args) {
  shapes::check_place_rows(args);
  const auto& [pool, x, rows, codes] = args;
  const std::vector<double> values = load(x);
  const int64_t num_rows = x.dim(0), width = num_rows ? x.numel() / num_rows : 0;
  if (codes != RowCodes::none) {
    const int64_t dim = x.cols(), heads = dim ? width / dim : 0;
    for (int64_t i = 0; i < num_rows * heads; ++i)
      round_vector(codes, std::span(values).subspan(size_t(i * dim), size_t(dim)),
                   pool.data<uint8_t>() + (rows[i / heads] * heads + i % heads) * pool.cols());
    return;
  }
  std::vector<double> all = load(pool);
  for (int64_t t = 0; t < num_rows; ++t)
    std::copy_n(values.begin() + t * width, width, all.begin() + rows[t] * width);
  store(pool, all);
}

}  // namespace weft::reference
