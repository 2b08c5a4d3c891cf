// Shape checks: what every kernel of the table demands of its arguments, said once for the backends that check.
#include "weft/kernels/shape_checks.h"

#include <limits>

namespace weft::shapes {
namespace {

// Throws in the name of one op. Messages are formatted only on failure: planning calls these very often.
struct Op {
  std::string_view name;

  void present(std::string_view what, const Tensor& t) const {
    if (!t) throw Error("{}: {} is missing, but is not optional", name, what);
    if (!is_float(t.dtype())) throw Error("{}: {} holds {}, but must hold floats", name, what, name_of(t.dtype()));
  }
  // A pool of rows, of floats or of codes.
  void pool(std::string_view what, const Tensor& t, RowCodes codes) const {
    if (codes == RowCodes::none) return present(what, t);
    if (!t) throw Error("{}: {} is missing, but is not optional", name, what);
    dtype(what, t, DType::u8);
  }
  void absent(std::string_view what, const Tensor& t, std::string_view reason) const {
    if (t) throw Error("{}: {} is given, but {}", name, what, reason);
  }
  void rank(std::string_view what, const Tensor& t, int rank) const {
    present(what, t);
    if (t.shape().rank() != rank) throw Error("{}: {} is {}, but must have {} dims", name, what, t.shape(), rank);
  }
  void shape(std::string_view what, const Tensor& t, const Shape& expected) const {
    present(what, t);
    dims(what, t, expected);
  }
  void dims(std::string_view what, const Tensor& t, const Shape& expected) const {
    if (t.shape() != expected) throw Error("{}: {} is {}, but must be {}", name, what, t.shape(), expected);
  }
  void dtype(std::string_view what, const Tensor& t, DType expected) const {
    if (t.dtype() != expected)
      throw Error("{}: {} holds {}, but must hold {}", name, what, name_of(t.dtype()), name_of(expected));
  }
  void like(std::string_view what, const Tensor& t, const Tensor& model) const {
    shape(what, t, model.shape());
    dtype(what, t, model.dtype());
  }
  // A vector of `count` elements, of any rank: statistics of rows may keep the shape of the rows.
  void count(std::string_view what, const Tensor& t, int64_t count) const {
    present(what, t);
    if (t.numel() != count) throw Error("{}: {} is {}, but must have {} elements", name, what, t.shape(), count);
  }
  // Statistics, losses and gradients of parameters: f64 beside f64, else f32.
  void statistic(std::string_view what, const Tensor& t, int64_t num_elements, const Tensor& x) const {
    count(what, t, num_elements);
    dtype(what, t, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  void that(bool condition, std::string_view message) const {
    if (!condition) throw Error("{}: {}", name, message);
  }
  // x: a tensor of the kernel. One without data is not looked into, and neither are the indices of its rows.
  void indices(const Tensor& x, std::string_view what, const int32_t* values, int64_t count, int64_t lowest,
               int64_t limit) const {
    if (count && !values) throw Error("{}: {} is null, but must point to {} numbers", name, what, count);
    if (x.device() == Device::meta) return;
    // Without a way out, so that the compiler looks at many at once.
    int32_t least = std::numeric_limits<int32_t>::max(), most = std::numeric_limits<int32_t>::min();
    for (int64_t i = 0; i < count; ++i) least = std::min(least, values[i]), most = std::max(most, values[i]);
    const bool are_inside = count == 0 || (least >= lowest && most < limit);
    for (int64_t i = 0; !are_inside && i < count; ++i)
      if (values[i] < lowest || values[i] >= limit)
        throw Error("{}: {}[{}] is {}, but must be in [{}, {})", name, what, i, values[i], lowest, limit);
  }
};

// Of rows of q and keys in the blocks of a pool.
void check_sequences(const Op& op, const Tensor& q, const Tensor& pool, std::span<const PagedSequence> sequences) {
  op.that(sequences.empty() || sequences.data(), "num_sequences is not 0, but sequences is null");
  const int64_t num_blocks = pool.dim(0), block_tokens = pool.dim(1);
  int32_t row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PagedSequence& s = sequences[i];
    if (s.q_begin != row || s.q_end < s.q_begin)
      throw Error("{}: sequence {} has rows {} to {}, but must begin with row {}", op.name, i, s.q_begin, s.q_end,
                  row);
    if (s.num_keys < s.q_end - s.q_begin)
      throw Error("{}: sequence {} has {} rows, but only {} keys", op.name, i, s.q_end - s.q_begin, s.num_keys);
    row = s.q_end;
    op.indices(q, "blocks", s.blocks, (s.num_keys + block_tokens - 1) / block_tokens, 0, num_blocks);
  }
  if (row != q.dim(0)) throw Error("{}: the sequences have {} rows, but q has {}", op.name, row, q.dim(0));
}

void check_epilogue(const Op& op, const MatmulArgs& args) {
  using Kind = Epilogue::Kind;
  const Epilogue& e = args.epilogue;
  if (e.bias) op.count("bias", e.bias, args.y.dim(1));
  if (args.accumulate)
    op.that(e.kind == Kind::none && !e.bias, "accumulate goes with neither an epilogue nor a bias");
  const bool is_gated = e.kind == Kind::gated || e.kind == Kind::gated_backward;
  if (e.kind == Kind::activate || e.kind == Kind::gated) op.shape("act", e.act, args.y.shape());
  if (is_gated) op.shape("gate", e.gate, args.y.shape());
  if (e.kind == Kind::activate_backward) op.shape("pre", e.pre, args.y.shape());
  if (e.kind == Kind::gated_backward) {
    op.shape("up", e.up, args.y.shape());
    op.shape("dgate", e.dgate, args.y.shape());
  }
}

void check_block_matrix(const Op& op, std::string_view name, const BlockMatrix& b, int64_t rows, int64_t cols) {
  if (b.rows != rows || b.cols != cols)
    throw Error("{}: {} is [{}, {}], but must be [{}, {}]", op.name, name, b.rows, b.cols, rows, cols);
  if (b.skip < 0 || b.skip >= block_elements(b.type))
    throw Error("{}: {} skips a whole block or less than nothing", op.name, name);
  if (b.blocks.dtype() != DType::u8 || b.blocks.numel() != b.rows * b.row_bytes())
    throw Error("{}: the blocks of {} are not rows of so many blocks", op.name, name);
}

void check_blocks_b(const Op& op, const MatmulArgs& args, int64_t n, int64_t k) {
  const BlockMatrix& b = args.blocks_b;
  op.that(args.transpose_b && !args.transpose_a, "blocks_b is multiplied as b transposed, with a as it is");
  op.that(!args.packed_b && !args.nf4_b, "blocks_b takes the place of packed_b and nf4_b");
  check_block_matrix(op, "blocks_b", b, n, k);
  if (b.type == BlockType::int8 && b.cols > kMostInt8Cols)
    throw Error("{}: an int8 matrix of {} columns, but {} are the most", op.name, b.cols, kMostInt8Cols);
}

void check_spans(const Op& op, const AttentionShape& s, int64_t num_queries, int64_t num_keys) {
  op.that(s.num_spans == 0 || s.spans, "num_spans is not 0, but spans is null");
  int32_t row = 0;
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    if (a.q_begin > a.q_end || a.k_begin > a.k_end)
      throw Error("{}: span {} ends before it begins (query rows {} to {}, key rows {} to {})", op.name, i, a.q_begin,
                  a.q_end, a.k_begin, a.k_end);
    if (a.q_begin < row || a.q_end > num_queries)
      throw Error("{}: span {} covers query rows {} to {}, but must lie in {} to {}", op.name, i, a.q_begin, a.q_end,
                  row, num_queries);
    if (a.k_begin < 0 || a.k_end > num_keys)
      throw Error("{}: span {} covers key rows {} to {}, but there are {}", op.name, i, a.k_begin, a.k_end, num_keys);
    if (a.lead < 0) throw Error("{}: the lead of span {} is {}, but must be at least 0", op.name, i, a.lead);
    if (a.first_key < 0 || a.first_key + int64_t(a.k_end - a.k_begin) > kMaxKeys)
      throw Error("{}: the keys of span {} are at positions {} to {}, but a sequence has at most {}", op.name, i,
                  a.first_key, a.first_key + int64_t(a.k_end - a.k_begin), kMaxKeys);
    row = a.q_end;
  }
}

void check_probability(const Op& op, float p) {
  if (!(p >= 0 && p < 1)) throw Error("{}: the dropout probability is {}, but must be in [0, 1)", op.name, p);
}

void check_heads_and_scores(const Op& op, const AttentionShape& s) {
  if (s.num_heads < 0 || s.num_kv_heads < 0 || (s.num_kv_heads ? s.num_heads % s.num_kv_heads : s.num_heads) != 0)
    throw Error("{}: {} query heads cannot share {} key/value heads evenly", op.name, s.num_heads, s.num_kv_heads);
  op.that(s.scale != 0, "the scale of the scores is 0; it is usually 1 / sqrt(head_dim)");
  op.that(s.softcap >= 0, "the cap of the scores is below 0");
  op.that(s.window >= 0, "the window is below 0");
}

void check_qkv(const Op& op, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& s) {
  op.rank("q", q, 3);
  op.rank("k", k, 3);
  op.shape("q", q, {q.dim(0), s.num_heads, s.head_dim});
  op.shape("k", k, {k.dim(0), s.num_kv_heads, s.head_dim});
  op.dtype("k", k, q.dtype());
  op.shape("v", v, {k.dim(0), s.num_kv_heads, s.values_dim()});
  op.dtype("v", v, q.dtype());
  check_heads_and_scores(op, s);
  if (s.first_head < 0 || (s.total_heads && s.first_head + s.num_heads > s.total_heads))
    throw Error("{}: heads {} to {} are not among the layer's {}", op.name, s.first_head, s.first_head + s.num_heads,
                s.total_heads);
  check_spans(op, s, q.dim(0), k.dim(0));
}

void check_key_bits(const Op& op, const Tensor& bits, const Tensor& q, const Tensor& k, const Tensor& bias) {
  op.absent("bias", bias, "keys are selected");
  op.dtype("key_bits", bits, DType::i32);
  op.dims("key_bits", bits, {q.dim(0), (k.dim(0) + 31) / 32});
  op.that(bits.numel() <= std::numeric_limits<int32_t>::max(), "key_bits are more words than 31 bits count");
}

void check_position_bias(const Op& op, const Tensor& bias, const Tensor& q, const AttentionShape& s) {
  op.rank("bias", bias, 2);
  op.statistic("bias", bias, bias.numel(), q);
  if (bias.dim(0) != s.num_heads || bias.dim(1) % 2 == 0)
    throw Error("{}: bias is {}, but must have {} rows and an odd number of columns", op.name, bias.shape(),
                s.num_heads);
}

void check_output(const Op& op, std::string_view what, const Tensor& t, const Tensor& q, const AttentionShape& s) {
  op.shape(what, t, {q.dim(0), s.num_heads, s.values_dim()});
  op.dtype(what, t, q.dtype());
}

// Of rows that are looked up.
void check_ids(const Op& op, const Tensor& y, const TableRows& ids, int64_t rows_here) {
  const bool is_of_device = ids.is_on_device && y.device() == Device::cuda;  // whose kernels made them
  if (!is_of_device) op.indices(y, "ids", ids.ids, y.dim(0), 0, ids.total ? ids.total : rows_here);
}

}  // namespace

void check_alike(std::string_view name, std::initializer_list<Named> tensors) {
  const Op op{name};
  const Tensor& first = tensors.begin()->tensor;
  op.present(tensors.begin()->name, first);
  for (const Named& t : tensors) op.like(t.name, t.tensor, first);
}

void check_matmul(const MatmulArgs& args) {
  const Op op{"matmul"};
  op.that(!(args.transpose_a && args.transpose_b), "transposing both a and b is not supported");
  op.rank("y", args.y, 2);
  op.rank("a", args.a, 2);
  const int64_t m = args.y.dim(0), n = args.y.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  op.shape("a", args.a, args.transpose_a ? Shape{k, m} : Shape{m, k});
  const Shape b = args.transpose_b ? Shape{n, k} : Shape{k, n};
  if (args.blocks_b) {
    check_blocks_b(op, args, n, k);
  } else if (args.nf4_b) {
    const nf4::Layout& layout = *args.nf4_b.layout;
    op.that(layout.rows() == b[0] && layout.cols() == b[1], "nf4_b has another shape than the product needs");
    op.that(
        args.nf4_b.blocks && args.nf4_b.blocks.dtype() == DType::u8 && args.nf4_b.blocks.numel() == layout.bytes(),
        "nf4_b.blocks are not those of its layout");
    op.shape("nf4_b.scales", args.nf4_b.scales, {nf4::num_groups(layout.whole_numel()) + 1});
  } else if (args.b || !args.packed_b) {
    op.shape("b", args.b, b);
    op.dtype("b", args.b, args.a.dtype());
  }
  if (args.y.dtype() != DType::f32) op.dtype("y", args.y, args.a.dtype());
  if (args.float8) {
    op.that(args.b && !args.packed_b && !args.nf4_b && !args.blocks_b, "float8 rounds b, which must be given plain");
    op.dtype("a", args.a, DType::bf16);
  }
  check_epilogue(op, args);
}

void check_matmuls_of_one_a(std::span<const MatmulArgs> products) {
  const Op op{"matmuls_of_one_a"};
  op.that(!products.empty() && products.size() <= kMostMatmulsOfOneA, "so many products are not made at once");
  for (const MatmulArgs& product : products) {
    check_matmul(product);
    op.that(product.a.raw() == products[0].a.raw() && product.a.shape() == products[0].a.shape(),
            "products have one a");
    op.that(!product.transpose_a, "a is not transposed");
  }
}

void check_attention(const AttentionArgs& args) {
  const Op op{"attention"};
  check_qkv(op, args.q, args.k, args.v, args.shape);
  check_probability(op, args.dropout.p);
  check_output(op, "y", args.y, args.q, args.shape);
  if (args.bias) check_position_bias(op, args.bias, args.q, args.shape);
  if (args.key_bits) check_key_bits(op, args.key_bits, args.q, args.k, args.bias);
  if (args.lse) op.statistic("lse", args.lse, args.q.dim(0) * args.shape.num_heads, args.q);
}

void check_attention_backward(const AttentionBackwardArgs& args) {
  const Op op{"attention_backward"};
  check_qkv(op, args.q, args.k, args.v, args.shape);
  check_probability(op, args.dropout.p);
  op.like("dq", args.dq, args.q);
  op.like("dk", args.dk, args.k);
  op.like("dv", args.dv, args.v);
  check_output(op, "dy", args.dy, args.q, args.shape);
  check_output(op, "y", args.y, args.q, args.shape);
  op.statistic("lse", args.lse, args.q.dim(0) * args.shape.num_heads, args.q);
  if (args.key_bits) check_key_bits(op, args.key_bits, args.q, args.k, args.bias);
  if (!args.bias) return;
  check_position_bias(op, args.bias, args.q, args.shape);
  op.like("dbias", args.dbias, args.bias);
}

void check_attention_merge(const Tensor& acc, const Tensor& acc_lse, const Tensor& part, const Tensor& part_lse) {
  const Op op{"attention_merge"};
  op.rank("part", part, 3);
  op.shape("acc", acc, part.shape());
  op.statistic("acc", acc, part.numel(), part);
  op.shape("acc_lse", acc_lse, {part.dim(1), part.dim(0)});
  op.statistic("acc_lse", acc_lse, acc_lse.numel(), part);
  op.like("part_lse", part_lse, acc_lse);
}

void check_attention_sinks(std::string_view name, const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  const Op op{name};
  op.rank("y", y, 3);
  op.shape("lse", lse, {y.dim(1), y.dim(0)});
  op.statistic("lse", lse, lse.numel(), y);
  op.shape("sinks", sinks, {y.dim(1)});
  op.dtype("sinks", sinks, y.dtype());
}

void check_attention_sinks_backward(const Tensor& dsinks, const Tensor& dy, const Tensor& y, const Tensor& lse,
                                    const Tensor& sinks) {
  const Op op{"attention_sinks_backward"};
  check_attention_sinks(op.name, y, lse, sinks);
  op.like("dy", dy, y);
  op.statistic("dsinks", dsinks, sinks.numel(), y);
}

void check_paged_attention(const PagedAttentionArgs& args) {
  const Op op{"paged_attention"};
  op.rank("q", args.q, 3);
  op.rank("y", args.y, 3);
  op.pool("keys", args.keys, args.codes);
  if (args.values) op.pool("values", args.values, args.codes);
  const int64_t num_rows = args.q.dim(0), num_blocks = args.keys.dim(0), block_tokens = args.keys.dim(1);
  const auto of_width = [&](int64_t dim) {
    return Shape{num_blocks, block_tokens, args.keys.dim(2), row_width(args.codes, dim)};
  };
  op.dims("keys", args.keys, of_width(args.q.dim(2)));
  if (args.values) op.dims("values", args.values, of_width(args.y.dim(2)));
  if (args.values) op.dtype("values", args.values, args.keys.dtype());
  op.that(args.values || args.y.dim(2) <= args.q.dim(2), "values that are elements of keys are not more than these");
  op.shape("y", args.y, {num_rows, args.q.dim(1), args.y.dim(2)});
  op.dtype("y", args.y, args.q.dtype());
  op.that(block_tokens > 0, "a block has room for no token");
  if (args.sinks) op.shape("sinks", args.sinks, {args.q.dim(1)}), op.dtype("sinks", args.sinks, args.q.dtype());
  check_heads_and_scores(op, shape_of(args));
  if (args.selected) {
    op.dims("selected", args.selected, {num_rows, args.selected.cols()});
    op.dtype("selected", args.selected, DType::i32);
    op.that(args.window == 0, "there is no window where keys are selected");
  }
  check_sequences(op, args.q, args.keys, {args.sequences, size_t(args.num_sequences)});
}

void check_select_keys(const SelectKeysArgs& args) {
  const Op op{"select_keys"};
  op.rank("q", args.q, 3);
  op.pool("keys", args.keys, args.codes);
  const int64_t num_rows = args.q.dim(0);
  op.dims("keys", args.keys, {args.keys.dim(0), args.keys.dim(1), 1, row_width(args.codes, args.q.dim(2))});
  op.that(args.keys.dim(1) > 0, "a block has room for no token");
  op.shape("weights", args.weights, {num_rows, args.q.dim(1)});
  op.statistic("weights", args.weights, args.weights.numel(), args.q);
  op.that(args.selected && args.selected.shape().rank() == 2, "selected has a row of keys for each row of q");
  op.dims("selected", args.selected, {num_rows, args.selected.dim(1)});
  op.dtype("selected", args.selected, DType::i32);
  op.that(args.selected.dim(1) > 0, "at least one key is selected");
  check_sequences(op, args.q, args.keys, {args.sequences, size_t(args.num_sequences)});
}

void check_mark_keys(const Tensor& bits, const Tensor& selected) {
  const Op op{"mark_keys"};
  for (const auto& [what, t] : {Named{"bits", bits}, Named{"selected", selected}}) {
    op.that(t && t.shape().rank() == 2, "bits and selected have a row for each row of queries");
    op.dtype(what, t, DType::i32);
  }
  op.that(bits.dim(0) == selected.dim(0), "bits and selected are of the same rows");
}

void check_place_rows(const PlaceRowsArgs& args) {
  const auto& [pool, x, rows, codes] = args;
  const Op op{"place_rows"};
  op.present("x", x);
  op.pool("pool", pool, codes);
  op.that(pool.shape().rank() == x.shape().rank() + 1, "the pool must have a dim more than x");
  Shape row = x.shape();
  row[-1] = row_width(codes, row[-1]);
  op.that(row.rank() > 1 && std::ranges::equal(pool.shape().dims().subspan(2), row.dims().subspan(1)),
          "rows of the pool are not like those of x");
  op.indices(x, "rows", rows, x.dim(0), 0, pool.dim(0) * pool.dim(1));
}

void check_accumulate(const Tensor& sum, const Tensor& x) {
  const Op op{"accumulate"};
  op.present("x", x);
  op.shape("sum", sum, x.shape());
  op.statistic("sum", sum, x.numel(), x);
}

void check_rope(const RopeArgs& args) {
  const Op op{"rope"};
  op.rank("x", args.x, 3);
  op.rank("cos", args.cos, 2);
  op.statistic("cos", args.cos, args.cos.numel(), args.x);
  op.like("sin", args.sin, args.cos);
  if (2 * args.cos.dim(1) > args.x.dim(2))
    throw Error("rope: the tables rotate {} elements, but a head has {}", 2 * args.cos.dim(1), args.x.dim(2));
  if (args.factors) op.statistic("factors", args.factors, args.cos.dim(0), args.x);
  op.indices(args.x, "positions", args.positions, args.x.dim(0), 0, args.cos.dim(0));
}

void check_join_heads(std::string_view name, const Tensor& y, const Tensor& shared, const Tensor& own) {
  const Op op{name};
  op.rank("shared", shared, 2);
  op.rank("own", own, 3);
  op.shape("y", y, {shared.dim(0), own.dim(1), shared.dim(1) + own.dim(2)});
  op.shape("own", own, {shared.dim(0), own.dim(1), own.dim(2)});
  op.dtype("own", own, y.dtype());
  op.dtype("shared", shared, y.dtype());
}

void check_part_of_heads(std::string_view name, const Tensor& by_token, const Tensor& by_head, int64_t first) {
  const Op op{name};
  op.rank("heads by token", by_token, 3);
  op.rank("heads one by one", by_head, 3);
  op.shape("heads one by one", by_head, {by_token.dim(1), by_token.dim(0), by_head.dim(2)});
  op.dtype("heads one by one", by_head, by_token.dtype());
  op.that(first >= 0 && first <= by_token.dim(2) - by_head.dim(2), "the part does not lie in a head");
}

void check_norm(const NormArgs& args) {
  const Op op{args.kind == NormKind::rms ? "rms norm" : "layer norm"};
  op.present("x", args.x);
  op.like("y", args.y, args.x);
  if (args.residual) {
    op.like("residual", args.residual, args.x);
    op.like("sum", args.sum, args.x);
  }
  op.count("weight", args.weight, args.x.cols());
  if (args.bias) op.count("bias", args.bias, args.x.cols());
  op.statistic("rstd", args.rstd, args.x.rows(), args.x);
  if (args.kind == NormKind::layer) op.statistic("mean", args.mean, args.x.rows(), args.x);
}

void check_norm_backward(const NormBackwardArgs& args) {
  const Op op{args.kind == NormKind::rms ? "rms norm backward" : "layer norm backward"};
  op.present("x", args.x);
  op.like("dx", args.dx, args.x);
  op.like("dy", args.dy, args.x);
  if (args.dsum) op.like("dsum", args.dsum, args.x);
  op.count("weight", args.weight, args.x.cols());
  if (args.dweight) op.statistic("dweight", args.dweight, args.x.cols(), args.x);
  if (args.dbias) op.statistic("dbias", args.dbias, args.x.cols(), args.x);
  op.statistic("rstd", args.rstd, args.x.rows(), args.x);
  if (args.kind == NormKind::layer) op.statistic("mean", args.mean, args.x.rows(), args.x);
}

void check_dropout(const Tensor& y, const Tensor& x, const DropoutKey& key) {
  check_alike("dropout", {{"x", x}, {"y", y}});
  check_probability({"dropout"}, key.p);
}

void check_embedding(const Tensor& y, const Tensor& table, const TableRows& ids, const Tensor& position_table,
                     const int32_t* positions) {
  const Op op{"embedding"};
  op.rank("y", y, 2);
  op.rank("table", table, 2);
  op.shape("table", table, {table.dim(0), y.dim(1)});
  op.dtype("table", table, y.dtype());
  check_ids(op, y, ids, table.dim(0));
  if (!position_table) return;
  op.rank("position_table", position_table, 2);
  op.shape("position_table", position_table, {position_table.dim(0), y.dim(1)});
  op.dtype("position_table", position_table, y.dtype());
  op.indices(y, "positions", positions, y.dim(0), 0, position_table.dim(0));
}

void check_embedding_of_blocks(const Tensor& y, const BlockMatrix& table, const TableRows& ids) {
  const Op op{"embedding_of_blocks"};
  op.rank("y", y, 2);
  check_block_matrix(op, "table", table, table.rows, y.dim(1));
  check_ids(op, y, ids, table.rows);
}

void check_embedding_backward(const Tensor& dtable, const Tensor& dy, const TableRows& ids) {
  const Op op{"embedding_backward"};
  op.rank("dtable", dtable, 2);
  op.rank("dy", dy, 2);
  op.shape("dtable", dtable, {dtable.dim(0), dy.dim(1)});
  op.statistic("dtable", dtable, dtable.numel(), dy);
  op.indices(dy, "ids", ids.ids, dy.dim(0), 0, ids.total ? ids.total : dtable.dim(0));
}

void check_cross_entropy(const Tensor& losses, const Tensor& logits, const int32_t* targets) {
  const Op op{"cross_entropy"};
  op.rank("logits", logits, 2);
  op.statistic("losses", losses, logits.dim(0), logits);
  op.indices(logits, "targets", targets, logits.dim(0), -1, logits.dim(1));
}

namespace {

// Of a row, these are the columns from `first_column` on: a target may lie in any other.
void check_columns(const Op& op, const Tensor& logits, const int32_t* targets, int64_t first_column) {
  op.rank("logits", logits, 2);
  op.indices(logits, "targets", targets, logits.dim(0), -1, std::numeric_limits<int32_t>::max());
  op.that(first_column >= 0, "first_column is negative");
}

}  // namespace

void check_cross_entropy_stats(const Tensor& stats, const Tensor& logits, const int32_t* targets,
                               int64_t first_column) {
  const Op op{"cross_entropy_stats"};
  check_columns(op, logits, targets, first_column);
  op.shape("stats", stats, {logits.dim(0), 3});
  op.statistic("stats", stats, 3 * logits.dim(0), logits);
}

void check_cross_entropy_combine(const Tensor& losses, const Tensor& lse, const Tensor& stats) {
  const Op op{"cross_entropy_combine"};
  op.rank("stats", stats, 3);
  op.shape("stats", stats, {stats.dim(0), lse.numel(), 3});
  op.like("losses", losses, lse);
  op.dtype("stats", stats, lse.dtype());
}

void check_cross_entropy_gradient(const Tensor& logits, const Tensor& lse, const Tensor& factors,
                                  const int32_t* targets, int64_t first_column) {
  const Op op{"cross_entropy_gradient"};
  check_columns(op, logits, targets, first_column);
  op.statistic("lse", lse, logits.dim(0), logits);
  if (factors) op.statistic("factors", factors, logits.dim(0), logits);
}

void check_find_tokens(const FindTokensArgs& args) {
  const Op op{"find_tokens"};
  const auto queries = int64_t(args.queries.size());
  const auto masks = int64_t(args.masks.size()) / std::max<int64_t>(args.mask_words(), 1);
  op.rank("logits", args.logits, 2);
  op.dtype("logits", args.logits, DType::f32);
  op.that(args.vocab > 0 && args.vocab <= args.logits.dim(1), "there are not as many columns as tokens");
  op.dtype("found", args.found, DType::u8);
  op.dims("found", args.found, {queries, int64_t(sizeof(FoundTokens))});
  for (const TokenQuery& q : args.queries) {
    op.that(q.row >= 0 && q.row < args.logits.dim(0), "a query is about a row that is not there");
    op.that(q.first_change >= 0 && q.first_change + q.num_changes() <= int64_t(args.changes.size()),
            "a query has changes that are not there");
    op.that(q.mask < masks, "a query has a mask that is not there");
    op.that(q.want != TokenQuery::Want::given || (q.given >= 0 && q.given < args.vocab),
            "a query is about a token that is not there");
  }
}

void check_place_tokens(const Tensor& ids, const int32_t* said, const Tensor& found) {
  const Op op{"place_tokens"};
  op.dtype("ids", ids, DType::i32);
  op.dims("ids", ids, {ids.numel()});
  op.dtype("found", found, DType::u8);
  op.dims("found", found, {found.dim(0), int64_t(sizeof(FoundTokens))});
  for (int64_t t = 0; t < ids.numel(); ++t)
    op.that(said[t] >= -found.dim(0), "a token is one that was not looked for");
}

void check_route(const RouteArgs& args) {
  const Op op{"route"};
  op.rank("logits", args.logits, 2);
  op.rank("weights", args.weights, 2);
  const int64_t tokens = args.logits.dim(0), k = args.weights.dim(1);
  op.that(args.logits.dtype() == DType::f32 || args.logits.dtype() == DType::f64, "logits must hold f32 or f64");
  op.like("scores", args.scores, args.logits);
  op.shape("weights", args.weights, {tokens, k});
  op.dtype("weights", args.weights, args.logits.dtype());
  if (args.bias) op.statistic("bias", args.bias, args.logits.dim(1), args.logits);
  if (args.factors) op.statistic("factors", args.factors, args.logits.dim(1), args.logits);
  if (k < 1 || k > args.logits.dim(1) || k > kMostExpertsPerToken)
    throw Error("{}: {} experts for each token, but there are {} and at most {} are supported", op.name, k,
                args.logits.dim(1), kMostExpertsPerToken);
  op.that(tokens == 0 || args.experts || args.chosen, "experts is null");
  op.that(!args.chosen || (args.chosen.shape() == Shape{tokens, k} && args.chosen.dtype() == DType::i32),
          "chosen must hold an i32 to each choice");
  op.that(!args.are_given || !args.chosen, "experts that are given lie on the host");
  for (int64_t i = 0; args.are_given && i < tokens * k; ++i)
    op.that(args.experts[i] >= 0 && args.experts[i] < args.logits.dim(1), "an expert that is given is none of them");
  const int64_t groups = args.rule.groups, chosen = args.rule.groups_per_token;
  if (groups < 1 || args.logits.dim(1) % groups != 0 || chosen < 1 || chosen > groups ||
      args.logits.dim(1) / groups * chosen < k)
    throw Error("{}: {} of {} groups of {} experts cannot serve a token with {}", op.name, chosen, groups,
                args.logits.dim(1), k);
}

void check_route_backward(const RouteBackwardArgs& args) {
  const Op op{"route backward"};
  op.rank("logits", args.logits, 2);
  const int64_t tokens = args.logits.dim(0), experts = args.logits.dim(1);
  op.like("scores", args.scores, args.logits);
  op.like("dlogits", args.dlogits, args.logits);
  if (args.dweights) {
    op.shape("dweights", args.dweights, {tokens, args.k});
    op.dtype("dweights", args.dweights, args.logits.dtype());
  }
  op.indices(args.logits, "experts", args.experts, tokens * args.k, 0, experts);
  if (args.factors) op.statistic("factors", args.factors, experts, args.logits);
  if (args.dfactors) op.like("dfactors", args.dfactors, args.logits);
  op.that(!args.dfactors || (args.dweights && args.factors), "dfactors are made of dweights, beside factors");
  if (!args.balance) return;
  op.rank("balance", args.balance, 2);
  op.shape("balance", args.balance, {args.balance.dim(0), experts});
  op.dtype("balance", args.balance, args.logits.dtype());
  op.indices(args.logits, "rows", args.rows, tokens, 0, args.balance.dim(0));
}

void check_order_by_group(const GroupOrderArgs& args) {
  const Op op{"order_by_group"};
  op.that(args.chosen && args.chosen.shape().rank() == 2, "chosen must be given, with two dims");
  const int64_t copies = args.chosen.numel();
  op.dims("at", args.at, args.chosen.shape());
  op.dims("tokens", args.tokens, {copies});
  op.dims("runs", args.runs, {copies, 3});
  for (const Tensor& t : {args.chosen, args.at, args.tokens, args.runs}) op.dtype("numbers", t, DType::i32);
  op.that(args.groups >= 0 && args.groups <= kMostOrderedGroups, "so many groups are not put in order");
}

void check_combine_rows(const Tensor& y, const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  const Op op{"combine_rows"};
  op.rank("y", y, 2);
  op.rank("x", x, 2);
  op.shape("x", x, {x.dim(0), y.dim(1)});
  op.dtype("x", x, y.dtype());
  if (weights) {
    op.shape("weights", weights, {y.dim(0), copies.k});
    op.statistic("weights", weights, weights.numel(), y);
  }
  if (!copies.is_on_device || y.device() != Device::cuda)
    op.indices(y, "copies", copies.at, y.dim(0) * copies.k, -1, x.dim(0));
}

void check_combine_rows_backward(const Tensor& dx, const Tensor& dweights, const Tensor& dy, const Tensor& x,
                                 const RowCopies& copies, const Tensor& weights) {
  check_combine_rows(dy, x ? x : dx, copies, weights);
  const Op op{"combine_rows backward"};
  op.present("weights", weights);
  if (x && dx) op.like("dx", dx, x);
  op.that(bool(x) == bool(dweights), "gradients of weights are of x");
  if (dweights) op.like("dweights", dweights, weights);
}

void check_convert(const Tensor& y, const Tensor& x) {
  const Op op{"convert"};
  op.present("x", x);
  op.shape("y", y, x.shape());
}

void check_fill(const Tensor& y) { Op{"fill"}.present("y", y); }

void check_sum_rows(const Tensor& y, const Tensor& x) {
  const Op op{"sum_rows"};
  op.present("x", x);
  op.statistic("y", y, x.cols(), x);
}

void check_scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors) {
  const Op op{"scale_columns"};
  op.present("x", x);
  op.like("y", y, x);
  op.statistic("factors", factors, x.cols(), x);
}

void check_dot_columns(const Tensor& y, const Tensor& a, const Tensor& b) {
  const Op op{"dot_columns"};
  op.present("a", a);
  op.like("b", b, a);
  op.statistic("y", y, a.cols(), a);
}

void check_dot_rows(const Tensor& y, const Tensor& a, const Tensor& b) {
  const Op op{"dot_rows"};
  op.present("a", a);
  op.like("b", b, a);
  op.statistic("y", y, a.rows(), a);
}

void check_sum_of_squares(std::span<const Tensor> xs) {
  for (const Tensor& x : xs) Op{"sum_of_squares"}.present("x", x);
}

}  // namespace weft::shapes
